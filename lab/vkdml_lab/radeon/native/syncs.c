// Objects that submissions signal, and what waits for them ("drm_syncobj"). An object has points, each with the submission that
// signals it at its end; what is no timeline has one point, of the number 0. Submissions are executed in the order in which they
// come, so none waits for one before it.
enum { SYNC_CREATE = 0xbf, SYNC_DESTROY, SYNC_TO_FILE, SYNC_FROM_FILE, SYNC_WAIT, SYNC_RESET, SYNC_SIGNAL,
       TIMELINE_WAIT = 0xca, TIMELINE_QUERY, SYNC_TRANSFER, TIMELINE_SIGNAL, SYNC_TO_EVENT = 0xcf };
#define NEVER ~0ull  // has been submitted
enum { MOST_SYNCS = 1 << 16, IS_SIGNALED = 1, WAIT_ALL = 1, WAIT_FOR_SUBMIT = 2, WAIT_AVAILABLE = 4, LAST_SUBMITTED = 1,
       OF_SYNC_FILE = 1 };

// The kernel's structures (drm.h), as far as they are looked at
typedef struct { u32 *handles; i64 until; u32 count, flags, first; } Wait;
typedef struct { u32 *handles; u64 *points; i64 until; u32 count, flags, first; } TimelineWait;
typedef struct { u32 *handles; u64 *points; u32 count, flags; } Timelines;
typedef struct { u32 *handles, count; } Handles;
typedef struct { u32 from, to; u64 from_point, to_point; u32 flags; } Transfer;
typedef struct { u32 handle, flags; int file; u32 pad; u64 point; } File;

static struct { u8 exists; u32 count; struct { u64 number, submission; } *points; } syncs[MOST_SYNCS];
static u64 submissions, over;  // numbers of the last that came, and of the last that was executed
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static int fails(int error) { errno = error; return -1; }

static int wait_change(i64 until) {  // 0 when the time is over
    const struct timespec t = {until < 0 ? 0 : until / 1000000000, until < 0 ? 0 : until % 1000000000};
    return pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT;
}

// Adds a point; one of the number 0 replaces all. A timeline's is not over before those below it
static void add_point(u32 handle, u64 number, u64 submission) {
    typeof(&syncs[0]) s = &syncs[handle % MOST_SYNCS];
    u32 gone = 0;
    while (number && gone + 1 < s->count && s->points[gone + 1].submission <= over) gone++;
    if (!number) gone = s->count;
    else if (s->count && s->points[s->count - 1].submission > submission) submission = s->points[s->count - 1].submission;
    s->count -= gone;
    memmove(s->points, s->points + gone, s->count * sizeof *s->points);
    s->points = realloc(s->points, (s->count + 1) * sizeof *s->points);
    s->points[s->count].number = number, s->points[s->count++].submission = submission;
}

// The submission that a point is over with, NEVER if nothing has been submitted that signals it
static u64 submission_of(u32 handle, u64 number) {
    typeof(&syncs[0]) s = &syncs[handle % MOST_SYNCS];
    u32 n = number || !s->count ? 0 : s->count - 1;
    while (n < s->count && s->points[n].number < number) n++;
    return n < s->count ? s->points[n].submission : NEVER;
}

static u64 payload(u32 handle, int submitted) {
    typeof(&syncs[0]) s = &syncs[handle % MOST_SYNCS];
    u64 number = 0;
    for (u32 n = 0; n < s->count; n++)
        if (submitted || s->points[n].submission <= over) number = s->points[n].number;
    return number;
}

static int wait_for(const u32 *handles, const u64 *points, u32 count, u32 flags, i64 until, u32 *first) {
    do {
        u32 done = 0;
        for (u32 n = 0; n < count; n++) {
            const u64 submission = submission_of(handles[n], points ? points[n] : 0);
            if (submission == NEVER && !(flags & (WAIT_FOR_SUBMIT | WAIT_AVAILABLE))) return fails(EINVAL);
            if (submission <= (flags & WAIT_AVAILABLE ? submissions : over)) *first = n, done++;
        }
        if (done == count || (done && !(flags & WAIT_ALL))) return 0;
    } while (wait_change(until));
    return fails(ETIME);
}

// A file of a fence is given out when the fence is over: what comes of it was signaled
static int to_file(File *f) {
    const u64 submission = submission_of(f->handle, 0);
    if (f->flags != OF_SYNC_FILE || submission == NEVER) return fails(EINVAL);
    while (over < submission) wait_change(INT64_MAX);
    f->file = memfd_create("signaled", MFD_CLOEXEC);
    return f->file < 0 ? -1 : 0;
}

static int sync_call(u32 number, void *argument) {
    static u32 made;
    const Handles *h = argument;
    const Timelines *t = argument;
    const Transfer *moved = argument;
    Wait *wait = argument;
    TimelineWait *waits = argument;
    u32 *words = argument;
    switch (number) {
    case SYNC_WAIT: return wait_for(wait->handles, NULL, wait->count, wait->flags, wait->until, &wait->first);
    case TIMELINE_WAIT: return wait_for(waits->handles, waits->points, waits->count, waits->flags, waits->until, &waits->first);
    case SYNC_CREATE:
        do made = made % (MOST_SYNCS - 1) + 1; while (syncs[made].exists);
        syncs[made].exists = 1, syncs[made].count = 0, words[1] & IS_SIGNALED ? add_point(made, 0, 0) : (void)0;
        words[0] = made;
        break;
    case SYNC_DESTROY: syncs[words[0] % MOST_SYNCS].exists = 0; break;
    case SYNC_RESET: for (u32 n = 0; n < h->count; n++) syncs[h->handles[n] % MOST_SYNCS].count = 0; break;
    case SYNC_SIGNAL: for (u32 n = 0; n < h->count; n++) add_point(h->handles[n], 0, 0); break;
    case TIMELINE_SIGNAL: for (u32 n = 0; n < t->count; n++) add_point(t->handles[n], t->points[n], 0); break;
    case TIMELINE_QUERY:
        for (u32 n = 0; n < t->count; n++) t->points[n] = payload(t->handles[n], t->flags & LAST_SUBMITTED);
        break;
    case SYNC_TRANSFER: {
        const u64 submission = submission_of(moved->from, moved->from_point);
        if (submission == NEVER) return fails(EINVAL);
        add_point(moved->to, moved->to_point, submission);
        break;
    }
    case SYNC_TO_FILE: return to_file(argument);
    case SYNC_FROM_FILE:
        if (((File *)argument)->flags != OF_SYNC_FILE) return fails(EINVAL);
        add_point(words[0], 0, 0);
        break;
    default: return fails(EINVAL);
    }
    pthread_cond_broadcast(&changed);
    return 0;
}
