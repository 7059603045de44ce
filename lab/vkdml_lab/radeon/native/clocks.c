// What happens before what: of each word, in memory and in shared memory, the last accesses, and of each wave, until when
// others know that its accesses are over. Two accesses that may come in either order are found in whatever order they ran.
//
// A wait makes a wave's accesses over. s_barrier tells the workgroup's waves of it; an atomic, all that read its word past
// their cache (COHERENT). Neither atomics and such reads race, nor such reads and stores in a buffer of flags. Such a read of
// a lone word may race with a store, but gets noise: parts load words of the state that they do not use.
enum { BYTES = 15, COHERENT = 16, LONE = 32, PLACE = 8, TIME = 24 };  // of a stamp
enum { COMMANDS = 0xffff };        // the place of the processor of commands
enum { RELEASED = 4096 };
static u64 now;                    // accesses and invalidations so far
static u64 began;                  // when this dispatch did
static u64 settled;                // accesses until then belong to dispatches that were waited for
static Wave *all_waves;            // of the dispatch
static u32 wave_count, group_waves;
static u64 *released[RELEASED];    // what atomics tell, by their addresses
static int has_released;
static int gave_up;                // a part did: it waits no more, and nothing of the dispatch is used
static struct { u64 va, end; int has_flags; } looked_at[16];  // buffers that are read past the cache
static int looked_count;

static int is_shared(const Instruction *i) { return i->op >= OP_ds_load; }
static int is_scratch(const Instruction *i) { return i->op == OP_scratch_load || i->op == OP_scratch_store; }
static int is_atomic(const Instruction *i) {
    return i->op == OP_buffer_atomic || i->op == OP_global_atomic || i->op == OP_ds_atomic;
}

static int kind_of(const Pending *p) {
    return is_shared(p->i) ? SHARED : p->i->op == OP_scalar_load ? SCALAR_LOADS : p->loads && !is_atomic(p->i) ? LOADS : STORES;
}

static void set_time(const Wave *w, Pending *p) {
    const int looks = p->loads && p->i->flags & GLC, coherent = looks || is_atomic(p->i) ? COHERENT : 0;
    const int lone = looks && !is_atomic(p->i) && p->words == 1 ? LONE : 0;
    p->stamp = ++now << TIME | (u64)(w->core << 5 | w->index) << PLACE | coherent | lone;
}

static inline u64 stamp_at(u64 stamp, u64 va, u32 size) { return stamp | (((1u << size) - 1) << va % 4 & BYTES); }

// Until when the wave's accesses of each kind are over, or ordered in its workgroup
static void find_over(const Wave *w, int in_group, u64 *over) {
    for (int kind = 0; kind < KINDS; kind++) over[kind] = now;
    for (const Queue *q = w->queues; q < w->queues + KINDS; q++)
        for (int n = 0; n < q->count; n++) {
            const Pending *p = q->of[n];
            u64 *until = &over[kind_of(p)];
            const u64 when = p->stamp >> TIME;  // 0 of scratch memory, which is the wave's own
            if (when && !(in_group && p->sent) && when <= *until) *until = when - 1;
        }
}

static void join(u64 **to, const u64 *from) {
    if (!*to) *to = calloc(KINDS * wave_count, sizeof **to);
    for (u32 n = 0; from && n < KINDS * wave_count; n++) (*to)[n] = from[n] > (*to)[n] ? from[n] : (*to)[n];
}

static void meet_at_barrier(Group *group) {
    for (Wave *w = group->waves; w < group->waves + group->wave_count; w++) {
        find_over(w, 1, w->ordered), find_over(w, 0, w->over);
        if (w->clock) join(&group->clock, w->clock), free(w->clock), w->clock = NULL;
        if (w->state == AT_BARRIER) w->state = RUNS;
    }
}

static void release(const Wave *w, u64 va) {
    u64 mine[KINDS], **to = &released[va / 4 % RELEASED];
    find_over(w, 0, mine);
    join(to, w->clock ? w->clock : w->group->clock);
    for (const Wave *of = w->group->waves; of < w->group->waves + w->group->wave_count; of++)
        for (int kind = 0; kind < KINDS; kind++) {
            u64 *until = &(*to)[KINDS * (of - all_waves) + kind], over = of == w ? mine[kind] : of->over[kind];
            if (over > *until) *until = over;
        }
    has_released = 1;
}

// The wave has the value that it read past its cache, and so knows what those knew that wrote it by an atomic
static void acquire(Wave *w, const Pending *p) {
    for (int l = 0; has_released && p->stamp & COHERENT && !is_shared(p->i) && l < w->width; l++)
        for (u32 k = 0; p->mask >> l & 1 && k < p->words; k++) {
            const u64 *from = p->address[l] ? released[(p->address[l] / 4 + k) % RELEASED] : NULL;
            if (!from) continue;
            if (!w->clock) join(&w->clock, w->group->clock);
            join(&w->clock, from);
        }
}

// Whether words of a buffer are all ones as a dispatch begins to read it past its cache: each is its own flag then, and looked
// at until it is something else
static void look_at(u64 va, u64 bytes) {
    const Range *range = range_of(va, bytes);
    for (int n = 0; n < looked_count; n++) if (looked_at[n].va == va) return;
    if (!range || looked_count == 16) return;
    const u32 *word = (u32 *)(range->host + (va - range->va)), *end = word + bytes / 4;
    while (word < end && *word != ~0u) word++;
    looked_at[looked_count].va = va, looked_at[looked_count].end = va + bytes, looked_at[looked_count++].has_flags = word < end;
}

static int is_in_flags(u64 va) {
    for (int n = 0; n < looked_count; n++)
        if (va >= looked_at[n].va && va < looked_at[n].end) return looked_at[n].has_flags;
    return 0;
}

static int is_before(const Wave *w, u64 earlier, int kind) {
    const u64 when = earlier >> TIME, place = earlier >> PLACE & 0xffff, *clock = w->clock ? w->clock : w->group->clock;
    const Wave *of = &all_waves[(place >> 6) * group_waves + (place & 31)];
    if (of->group == w->group && when > w->group->began) return of == w || when <= of->ordered[kind];
    return clock && when <= clock[KINDS * (of - all_waves) + kind];
}

static int check_race(const Wave *w, Instruction *i, u64 at, u64 earlier, int kind, u64 mine) {
    const u64 when = earlier >> TIME, either = earlier | mine;
    const int is_over = when <= began;
    if (!(earlier & mine & BYTES) || (is_over && when <= settled)) return 0;
    if (!is_over && (earlier & mine & COHERENT || is_before(w, earlier, kind))) return 0;
    if (!is_over && (gave_up || (either & COHERENT && is_in_flags(at)))) return 0;
    found(is_over ? UNORDERED : kind == SHARED ? LDS_RACE : either & LONE ? NOISE : RACE, i, at);
    return 1;
}

// An access of a word; of its last reads it keeps those of two waves. Returns whether a read races
static inline int touch(const Wave *w, Instruction *i, u64 at, Word *word, int writes, u64 mine) {
    const int shared = is_shared(i), same_wave = !((word->read ^ mine) >> PLACE & 0xffff);
    const int races = word->written && check_race(w, i, at, word->written, shared ? SHARED : STORES, mine);
    if (writes) {
        check_race(w, i, at, word->read, shared ? SHARED : LOADS, mine);
        check_race(w, i, at, word->other_read, shared ? SHARED : LOADS, mine);
        word->written = mine;
    } else {
        if (!same_wave) word->other_read = word->read;
        word->read = mine;
    }
    return races;
}

static void forget(void) {  // at the end of a dispatch: clocks, and what waves that did not end have under way
    for (int n = 0; n < RELEASED; n++) free(released[n]), released[n] = NULL;
    for (Wave *w = all_waves; w < all_waves + wave_count; w++) {
        for (Queue *q = w->queues; q < w->queues + KINDS; q++) while (q->count) free(q->of[--q->count]);
        free(w->clock);
        if (!w->index) free(w->group->clock);
    }
    began = now, has_released = looked_count = gave_up = 0;
}
