// What lies between the driver and the "noop drm shim", which answers as the kernel would but executes nothing: memory with its
// addresses, and submissions, which another thread executes in their order.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/stat.h>

enum { GEM_CLOSE = 0x09, GET_CAP = 0x0c, CREATE = 0x40, MMAP = 0x41, SUBMIT = 0x44, INFO = 0x45, WAIT_BUFFER = 0x47, VA = 0x48,
       WAIT_SUBMISSION = 0x49, WAIT_FENCES = 0x52, FENCE_TO_HANDLE = 0x54, MAPS = 1, REPLACES = 4, ADDFB2_MODIFIERS = 0x10,
       IP_INFO = 0x02, DEVICE_INFO = 0x16, SYNC_FILE_MERGE = 3 };
enum { CHUNK_COMMANDS = 1, CHUNK_WAIT = 4, CHUNK_SIGNAL, CHUNK_TIMELINE_WAIT = 8, CHUNK_TIMELINE_SIGNAL, MOST = 1 << 16, RING = 1024,
       MOST_FILES = 1024 };
#define SHIM_FILE "/memfd:shim mem"
#define WAIT_FOR_SUBMISSION 5000000000ull  // ns, as long as the kernel's
#define MOST_BYTES (3ull << 30)  // the shim has one more, and no way to say that there is none left

// The kernel's structures (amdgpu_drm.h, drm.h), as far as they are looked at
typedef struct { u32 handle, pad, operation, flags; u64 address, offset, size; } Mapping;
typedef struct { u32 id, words; void *data; } Chunk;
typedef struct { u32 context, list, chunks, flags; Chunk **at; } Submission;  // answers with its number
typedef struct { u32 pad, flags; u64 va; u32 bytes, type, instance, ring; } Commands;
typedef struct { u32 handle, flags; u64 point; } Signal;
typedef struct { u64 of, until; } IdleWait;
typedef struct { char name[32]; int other, merged; } Merge;
typedef struct { u64 to; u32 bytes, query; } Question;

static struct { u8 *host; u64 size; } buffers[MOST];
static u64 allocated;                              // bytes of all buffers, of which there are MOST_BYTES
static Range ranges[MOST];
static int range_count, has_thread;
static Commands waiting[RING];                     // of each submission

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

static void wait_until_idle(void) {
    while (has_thread && over < submissions) wait_change(INT64_MAX);
}

// Until a submission is over, or all that came so far are. Answers whether the time was over before
static int wait_idle(u64 submission, IdleWait *wait) {
    const i64 until = wait->until > INT64_MAX ? INT64_MAX : (i64)wait->until;
    while (over < submission && wait_change(until)) {}
    wait->of = over < submission;
    return 0;
}

static int submit(Submission *s) {
    for (u32 n = 0; n < s->chunks; n++) {
        const Chunk *chunk = s->at[n];
        const int is_timeline = chunk->id == CHUNK_TIMELINE_WAIT, size = is_timeline ? sizeof(Signal) : sizeof(u32);
        for (u32 k = 0; (is_timeline || chunk->id == CHUNK_WAIT) && k < chunk->words * 4 / size; k++) {
            const Signal *waits = (Signal *)((u8 *)chunk->data + k * size);
            const u64 point = is_timeline ? waits->point : 0, until = nanoseconds() + WAIT_FOR_SUBMISSION;
            if (wait_for(&waits->handle, &point, 1, WAIT_FOR_SUBMIT | WAIT_AVAILABLE, (i64)until, &(u32){0})) return -1;
        }
    }
    for (u32 n = 0; n < s->chunks; n++) {  // the commands stand first
        const Chunk *chunk = s->at[n];
        const int is_timeline = chunk->id == CHUNK_TIMELINE_SIGNAL, size = is_timeline ? sizeof(Signal) : sizeof(u32);
        if (chunk->id == CHUNK_COMMANDS) {
            while (submissions - over == RING) wait_change(INT64_MAX);
            waiting[submissions++ % RING] = *(Commands *)chunk->data;
        }
        for (u32 k = 0; (is_timeline || chunk->id == CHUNK_SIGNAL) && k < chunk->words * 4 / size; k++) {
            const Signal *signal = (Signal *)((u8 *)chunk->data + k * size);
            add_point(signal->handle, is_timeline ? signal->point : 0, submissions);
        }
    }
    *(u64 *)s = submissions;
    pthread_cond_broadcast(&changed);
    return 0;
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
    if (number >= SYNC_CREATE && number <= SYNC_TO_EVENT) return sync_call(number, argument);
    if (number == WAIT_SUBMISSION) return wait_idle(((IdleWait *)argument)->of, argument);
    if (number == WAIT_BUFFER) return wait_idle(submissions, argument);
    if (number == WAIT_FENCES || number == FENCE_TO_HANDLE) return fails(ENOSYS);
    if (number == GEM_CLOSE) close_buffer(*(u32 *)argument);
    if (size > MOST_BYTES || allocated + size > MOST_BYTES) return fails(ENOMEM);
    const int result = next(fd, kind, argument);
    const Mapping *m = argument;
    if (result) return result;
    if (number == INFO && settings.rdna == 4) become_rdna4(argument);
    allocated += size;
    if (number == CREATE) buffers[*(u32 *)argument % MOST].size = size, buffers[*(u32 *)argument % MOST].host = NULL;
    if (number == VA && (m->operation == MAPS || m->operation == REPLACES)) map(fd, m, next);
    else if (number == VA) unmap(m->address & ADDRESS, m->size);
    return number == SUBMIT ? submit(argument) : result;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long kind, void *argument) {
    static Call *next;
    if (!next) next = (Call *)dlsym(RTLD_NEXT, "ioctl");
    if (!getenv("VKDML_RADEON")) return next(fd, kind, argument);
    if (_IOC_TYPE(kind) == '>' && _IOC_NR(kind) == SYNC_FILE_MERGE) return ((Merge *)argument)->merged = dup(fd), 0;
    if (_IOC_TYPE(kind) != 'd') return next(fd, kind, argument);
    pthread_mutex_lock(&lock);
    const int result = locked_call(fd, kind, argument, next), error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
