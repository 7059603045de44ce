// Memory as a core sees it: through its cache, which may keep an older value until it is invalidated. A word remembers its last
// store; so a read that only luck kept from being stale is found too.
enum { MOST_CORES = 2048 };
typedef struct { u64 line, filled; u8 data[LINE_BYTES]; } Line;
static Line lines[MOST_CORES][LINES];           // of each core
static u64 cleaned[MOST_CORES];                 // when each core's cache was invalidated last
static u64 scalars_cleaned;                     // the same of the caches of scalars

static Range *memory_at(const Wave *w, Instruction *i, u64 va, u64 bytes) {
    const int shared = i && is_shared(i);
    Range *range = !shared ? range_of(va, bytes) : va + bytes <= w->group->lds.size ? &w->group->lds : NULL;
    if (!range) found(shared ? OUTSIDE_LDS : FAULT, i, va);
    return range;
}

// The memory behind a line as an instruction reads it; looked up once for neighbouring lanes
typedef struct { u64 line; const u8 *from; const Range *range; } View;

static int look(Wave *w, Instruction *i, u64 va, View *view) {
    const u64 number = va / LINE_BYTES;
    if (view->line == number && view->from) return 1;
    view->range = memory_at(w, i, va, 4), view->line = number, view->from = NULL;
    if (!view->range) return 0;
    const u8 *memory = view->from = view->range->host + (number * LINE_BYTES - view->range->va);
    if (is_shared(i) || i->op == OP_scalar_load) return 1;
    Line *kept = &lines[w->core][number % LINES];
    const int is_kept = kept->line == number && kept->filled >= cleaned[w->core];
    view->from = kept->data;
    if (!settings.caches || i->flags & GLC) {
        if (is_kept) kept->line = 0;
        view->from = memory;
    } else if (is_kept && (settings.caches == 2 || draw() % 16))
        return 1;
    else
        memcpy(kept->data, memory, LINE_BYTES), kept->line = number, kept->filled = now;
    return 1;
}

static inline u32 load(Wave *w, Instruction *i, u64 stamp, u64 va, View *view) {
    u32 word = 0;
    if (!look(w, i, va, view)) return 0;
    memcpy(&word, view->from + va % LINE_BYTES, i->size);
    Word *used = &view->range->words[(va - view->range->va) / 4];
    const int scalar = i->op == OP_scalar_load, core = scalar ? -1 : w->core;
    const u64 when = used->written >> TIME, clean = scalar ? scalars_cleaned : i->flags & GLC ? ~0ull : cleaned[core];
    const int by_another = when <= began || (int)(used->written >> (PLACE + 5) & 2047) != core;
    if (is_shared(i) && !used->written) found(UNWRITTEN_LDS, i, va);
    if (!is_shared(i) && when > clean && by_another && settings.caches && !gave_up) found(STALE, i, va);
    if (scalar) check_race(w, i, va, used->written, STORES, BYTES);
    else if (touch(w, i, va, used, 0, stamp_at(stamp, va, i->size))) word = 0x7fc00000 ^ draw();
    return word;
}

// A store or, done where memory is, an atomic. Returns the old word
static u32 store(Wave *w, Instruction *i, u64 stamp, u64 va, u32 word) {
    const Range *range = memory_at(w, i, va, i->size);
    Line *kept = &lines[w->core][va / LINE_BYTES % LINES];
    u32 old = 0;
    if (!range) return 0;
    u8 *memory = range->host + (va - range->va);
    touch(w, i, va, &range->words[(va - range->va) / 4], 1, stamp_at(stamp, va, i->size));
    memcpy(&old, memory, i->size);
    if (is_atomic(i)) word = atomic_of(i->immediate[1], old, word);
    memcpy(memory, &word, i->size);
    if (is_shared(i) || kept->line != va / LINE_BYTES) return old;
    if (is_atomic(i)) kept->line = 0;
    else memcpy(kept->data + va % LINE_BYTES, &word, i->size);
    return old;
}
