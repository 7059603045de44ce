// Memory as a core sees it: through its cache, which may keep an older value until it is invalidated. A word remembers its last
// store; so a read that only luck kept from being stale is found too.
enum { MOST_CORES = 2048 };
typedef struct { u64 line, filled; u8 data[LINE_BYTES]; } Line;
static Line (*lines)[LINES];                    // of each core
static u64 cleaned[MOST_CORES];                 // when each core's cache was invalidated last
static u64 all_cleaned, scalars_cleaned;        // the same of all cores, and of the caches of scalars

static inline u64 cleaned_at(int core) { return cleaned[core] > all_cleaned ? cleaned[core] : all_cleaned; }

static Range *memory_at(const Wave *w, Instruction *i, u64 va, u64 bytes) {
    Range *range = range_of(va, bytes);
    if (!range) found(w, FAULT, i, va);
    return range;
}

// The memory behind a line as an instruction reads it; looked up once for neighbouring lanes
typedef struct { u64 line; const u8 *from; const Range *range; } View;

static int look(Wave *w, Instruction *i, u64 va, View *view) {
    const u64 number = va / LINE_BYTES;
    if (view->line == number && view->from) return 1;
    view->range = memory_at(w, i, va, 4), view->line = number, view->from = NULL;
    if (!view->range) return 0;
    const u8 *memory = view->range->host + (number * LINE_BYTES - view->range->va);
    Line *kept = &lines[w->core][number % LINES];
    const int is_kept = kept->line == number && kept->filled >= cleaned_at(w->core);
    view->from = kept->data;
    if (!settings.caches || i->flags & GLC) {
        if (is_kept) kept->line = 0;
        view->from = memory;
    } else if (is_kept && (settings.caches == 2 || draw() % 16))
        return 1;
    else
        memcpy(kept->data, memory, LINE_BYTES), kept->line = number, kept->filled = now;
    i->passed += LINE_BYTES;
    return 1;
}

static inline void check_stale(const Wave *w, Instruction *i, u64 va, u64 written, int core, u64 clean) {
    const u64 when = written >> TIME;
    const int by_another = when <= began || (int)(written >> (PLACE + 5) & 2047) != core;
    if (when > clean && by_another && settings.caches && !gave_up) found(w, STALE, i, va);
}

static inline u32 load(Wave *w, Instruction *i, u64 stamp, u64 va, View *view) {
    u32 word = 0;
    if (!look(w, i, va, view)) return 0xdeadbeef;
    memcpy(&word, view->from + va % LINE_BYTES, i->size);
    Word *used = &view->range->words[(va - view->range->va) / 4];
    if (used->written) check_stale(w, i, va, used->written, w->core, i->flags & GLC ? ~0ull : cleaned_at(w->core));
    if (touch(w, i, va, used, 0, stamp_at(stamp, va, i->size))) word = 0x7fc00000 ^ draw();
    i->loaded += i->size;
    return word;
}

static u32 load_scalar(Wave *w, Instruction *i, u64 va) {
    const Range *range = memory_at(w, i, va, 4);
    if (!range) return 0xdeadbeef;
    const u64 written = range->words[(va - range->va) / 4].written;
    check_stale(w, i, va, written, -1, scalars_cleaned);
    check_race(w, i, va, written, STORES, BYTES);
    i->loaded += 4;
    return *(u32 *)(range->host + (va - range->va));
}

static u8 *to_store(Wave *w, Instruction *i, u64 stamp, u64 va) {
    Range *range = memory_at(w, i, va, i->size);
    if (!range) return NULL;
    touch(w, i, va, &range->words[(va - range->va) / 4], 1, stamp_at(stamp, va, i->size));
    return range->host + (va - range->va);
}

static void store(Wave *w, Instruction *i, u64 stamp, u64 va, u32 word) {
    u8 *memory = to_store(w, i, stamp, va);
    Line *kept = &lines[w->core][va / LINE_BYTES % LINES];
    if (memory) memcpy(memory, &word, i->size);
    if (kept->line == va / LINE_BYTES) memcpy(kept->data + va % LINE_BYTES, &word, i->size);
}

// An atomic: done where memory is. Returns the old word
static u32 exchange(Wave *w, Instruction *i, u64 stamp, u64 va, u32 with) {
    u8 *memory = to_store(w, i, stamp, va);
    Line *kept = &lines[w->core][va / LINE_BYTES % LINES];
    u32 old = 0;
    if (!memory) return 0;
    memcpy(&old, memory, 4);
    memcpy(memory, &(u32){atomic_of(i->immediate[1], old, with)}, 4);
    if (kept->line == va / LINE_BYTES) kept->line = 0;
    return old;
}
