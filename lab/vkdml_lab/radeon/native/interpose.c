// What lies between the driver and the "noop drm shim", which answers as the kernel would but executes nothing: memory with its
// addresses, submissions, which another thread executes in their order, and the objects that tell of their end.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/stat.h>

enum { GEM_CLOSE = 0x09, GET_CAP = 0x0c, CREATE = 0x40, INFO = 0x45, MMAP = 0x41, SUBMIT = 0x44, VA = 0x48, SYNC_CREATE = 0xbf,
       SYNC_DESTROY = 0xc0, SYNC_WAIT = 0xc3, SYNC_SIGNAL = 0xc5, MAPS = 1, REPLACES = 4, ADDFB2_MODIFIERS = 0x10,
       IP_INFO = 0x02, DEVICE_INFO = 0x16 };
enum { CHUNK_COMMANDS = 1, CHUNK_SIGNAL = 9, WAIT_ALL = 1, MOST = 1 << 16, RING = 1024, MOST_FILES = 1024 };
#define SHIM_FILE "/memfd:shim mem"
#define NEVER ~0ull
#define MOST_BYTES (3ull << 30)  // the shim has one more, and no way to say that there is none left

// The kernel's structures (amdgpu_drm.h, drm.h), as far as they are looked at
typedef struct { u32 handle, pad, operation, flags; u64 address, offset, size; } Mapping;
typedef struct { u32 id, words; void *data; } Chunk;
typedef struct { u32 context, list, chunks, flags; Chunk **at; } Submission;  // answers with its number
typedef struct { u32 pad, flags; u64 va; u32 bytes, type, instance, ring; } Commands;
typedef struct { u32 handle, flags; u64 point; } Signal;
typedef struct { u32 *handles; i64 until; u32 count, flags, first; } Wait;
typedef struct { u32 *handles, count; } Handles;
typedef struct { u64 to; u32 bytes, query; } Question;

static struct { u8 *host; u64 size; } buffers[MOST];
static u64 allocated;                              // bytes of all buffers, of which there are MOST_BYTES
static Range ranges[MOST];
static int range_count, has_thread;
static struct { u8 exists; u64 submission; } syncs[MOST];  // signaled when that submission is over: 0 was, NEVER is not made
static u64 submissions, over;                      // numbers of the last that came, and of the last that was executed
static Commands waiting[RING];                     // of each submission
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static Range *range_of(u64 va, u64 bytes) {
    static __thread int last;
    va &= ADDRESS;
    if (last < range_count && va >= ranges[last].va && va + bytes <= ranges[last].va + ranges[last].size) return &ranges[last];
    for (int n = 0; n < range_count; n++)
        if (va >= ranges[n].va && va + bytes <= ranges[n].va + ranges[n].size) return &ranges[last = n];
    return NULL;
}

static void *executes(void *unused) {
    pthread_mutex_lock(&lock);
    for (;; pthread_cond_wait(&changed, &lock))
        while (over < submissions) {
            pthread_mutex_unlock(&lock);
            submitted(waiting[over % RING].va, waiting[over % RING].bytes);
            pthread_mutex_lock(&lock);
            over++;
            pthread_cond_broadcast(&changed);
        }
    return unused;
}

// The shim has all memory in one file, which a child would share with its parent, both giving away the same parts: it gets its own
static void renew_memory(void) {
    char name[64], to[64];
    struct stat file;
    for (int fd = 0; fd < MOST_FILES; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(name, to, sizeof to - 1);
        if (length < 0 || (to[length] = 0, strncmp(to, SHIM_FILE, strlen(SHIM_FILE))) || fstat(fd, &file)) continue;
        const int own = memfd_create("shim mem", MFD_CLOEXEC);
        if (own < 0 || ftruncate(own, file.st_size) || dup3(own, fd, O_CLOEXEC) < 0) perror("vkdml radeon: a child's memory");
        close(own);
    }
}

static void before_fork(void) { pthread_mutex_lock(&lock); }  // so that no other thread is in the shim
static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {  // the thread is not in it; what was submitted before is the parent's
    pthread_mutex_init(&lock, NULL), pthread_cond_init(&changed, NULL);
    if (connection >= 0) close(connection);
    has_thread = 0, connection = -1, over = submissions;
    renew_memory();
}

static int wait_change(i64 until) {  // 0 when the time is over
    const struct timespec t = {until / 1000000000, until % 1000000000};
    return pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT;
}

static void wait_until_idle(void) {
    while (has_thread && over < submissions) wait_change(INT64_MAX);
}

static int wait_for(Wait *wait) {
    do {
        u32 done = 0;
        for (u32 n = 0; n < wait->count; n++)
            if (syncs[wait->handles[n] % MOST].submission <= over) wait->first = n, done++;
        if (done == wait->count || (done && !(wait->flags & WAIT_ALL))) return 0;
    } while (wait_change(wait->until));
    errno = ETIME;
    return -1;
}

static int sync_call(u32 number, void *argument) {
    static u32 made;
    const Handles *h = argument;
    u32 *words = argument;
    if (number == SYNC_WAIT) return wait_for(argument);
    if (number == SYNC_CREATE) {
        do made = made % (MOST - 1) + 1; while (syncs[made].exists);
        syncs[made].exists = 1, syncs[made].submission = words[1] & 1 ? 0 : NEVER;
        words[0] = made;
    } else if (number == SYNC_DESTROY)
        syncs[words[0] % MOST].exists = 0;
    else
        for (u32 n = 0; n < h->count; n++)
            syncs[h->handles[n] % MOST].submission = number == SYNC_SIGNAL ? 0 : NEVER;
    pthread_cond_broadcast(&changed);
    return 0;
}

static void submit(Submission *s) {
    for (u32 n = 0; n < s->chunks; n++) {  // the commands stand first
        const Chunk *chunk = s->at[n];
        const Signal *signals = chunk->data;
        if (chunk->id == CHUNK_COMMANDS) {
            while (submissions - over == RING) wait_change(INT64_MAX);
            waiting[submissions++ % RING] = *(Commands *)chunk->data;
        }
        for (u32 k = 0; chunk->id == CHUNK_SIGNAL && k < chunk->words * 4 / sizeof *signals; k++)
            syncs[signals[k].handle % MOST].submission = submissions;
    }
    *(u64 *)s = submissions;
    pthread_cond_broadcast(&changed);
}

typedef int Call(int, unsigned long, ...);

static void map(int fd, const Mapping *m, Call *next) {
    const u64 size = m->handle < MOST ? buffers[m->handle].size : 0;
    u64 at = m->handle;  // the kernel takes the handle, and answers with the offset in the file
    if (!size || range_count == MOST) return;
    if (!buffers[m->handle].host) {
        if (next(fd, _IOWR('d', MMAP, at), &at)) return;
        buffers[m->handle].host = mmap64(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off64_t)at);
    }
    Word *words = reserve(m->size / 4 * sizeof *words);
    if (buffers[m->handle].host != MAP_FAILED && words != MAP_FAILED)
        ranges[range_count++] = (Range){m->address & ADDRESS, m->size, buffers[m->handle].host + m->offset, words};
}

static void unmap(u64 address, u64 size) {
    wait_until_idle();
    for (int n = 0; n < range_count; n++)
        if (ranges[n].va >= address && ranges[n].va < address + (size ? size : 1)) {
            munmap(ranges[n].words, ranges[n].size / 4 * sizeof *ranges[n].words);
            ranges[n--] = ranges[--range_count];
        }
}

static void close_buffer(u32 handle) {
    if (handle >= MOST || !buffers[handle].size) return;
    wait_until_idle();
    if (buffers[handle].host) munmap(buffers[handle].host, buffers[handle].size);
    allocated -= buffers[handle].size;
    buffers[handle].host = NULL, buffers[handle].size = 0;
}

// The shim knows no RDNA 4: what it says of an RX 7900 XTX gets the numbers by which drivers know gfx1201
static void become_rdna4(const Question *asked) {
    u32 *answer = (u32 *)asked->to;
    if (asked->query == DEVICE_INFO) answer[2] = 0x51, answer[4] = 152;  // of the family GC 12.0
    if (asked->query == IP_INFO) answer[0] = 12, answer[1] = 0, answer[7] = 12 << 16 | 1;  // version 12.0.1
}

static int locked_call(int fd, unsigned long kind, void *argument, Call *next) {
    const u32 number = _IOC_NR(kind);
    const u64 size = number == CREATE ? *(u64 *)argument : 0;  // the answer is a handle
    pthread_t thread;
    if (!has_thread) has_thread = !pthread_create(&thread, NULL, executes, NULL);
    if (number == GET_CAP && *(u64 *)argument == ADDFB2_MODIFIERS) return ((u64 *)argument)[1] = 0;  // the shim would print
    if (number >= SYNC_CREATE && number <= SYNC_SIGNAL) return sync_call(number, argument);
    if (number == GEM_CLOSE) close_buffer(*(u32 *)argument);
    if (size > MOST_BYTES || allocated + size > MOST_BYTES) return errno = ENOMEM, -1;
    const int result = next(fd, kind, argument);
    const Mapping *m = argument;
    if (result) return result;
    if (number == INFO && settings.rdna == 4) become_rdna4(argument);
    allocated += size;
    if (number == CREATE) buffers[*(u32 *)argument % MOST].size = size, buffers[*(u32 *)argument % MOST].host = NULL;
    if (number == VA && (m->operation == MAPS || m->operation == REPLACES)) map(fd, m, next);
    else if (number == VA) unmap(m->address & ADDRESS, m->size);
    if (number == SUBMIT) submit(argument);
    return result;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long kind, void *argument) {
    static Call *next;
    if (!next) next = (Call *)dlsym(RTLD_NEXT, "ioctl");
    if (_IOC_TYPE(kind) != 'd' || !getenv("VKDML_RADEON")) return next(fd, kind, argument);
    pthread_mutex_lock(&lock);
    const int result = locked_call(fd, kind, argument, next), error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
