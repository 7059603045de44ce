// Memory as a core sees it: through its cache, which may keep an older value until it is invalidated. All stores are counted, and
// a word remembers the number of its last one; so a read that only luck kept from being stale is found too.
typedef struct { u64 line, filled; u8 data[LINE_BYTES]; } Line;
enum { MOST_CORES = 2048, COMMANDS = 0xffff };  // COMMANDS: the processor of commands, as the core that stores
static Line (*lines)[LINES];                    // of each core
static u64 now;                                 // stores and invalidations so far
static u64 cleaned[MOST_CORES];                 // when each core's cache was invalidated last
static u64 all_cleaned, scalars_cleaned;        // the same of all cores, and of the caches of scalars
static u64 settled;                             // stores until then belong to dispatches that were waited for
static u64 began;                               // when this dispatch did

static inline u64 least64(u64 a, u64 b) { return a < b ? a : b; }
static inline u64 cleaned_at(int core) { return cleaned[core] > all_cleaned ? cleaned[core] : all_cleaned; }
static void invalidate_core(int core) { cleaned[core] = ++now; }

// The memory behind a line as an instruction reads it; looked up once for neighbouring lanes
typedef struct { u64 line; const u8 *from; const Range *range; } View;

static int look(Wave *w, const Instruction *i, u64 va, View *view)
{
    const u64 number = va / LINE_BYTES;
    if (view->line == number && view->from) return 1;
    view->range = range_of(va, 4);
    if (!view->range) {
        found(w, FAULT, i, va);
        view->from = NULL;
        return 0;
    }
    view->line = number;
    const u8 *memory = view->range->host + (number * LINE_BYTES - view->range->va);
    Line *kept = &lines[w->core][number % LINES];
    const int is_kept = kept->line == number && kept->filled >= cleaned_at(w->core);
    if (!settings.caches || i->flags & GLC) {
        if (is_kept) kept->line = 0;
        view->from = memory;
    } else {
        view->from = kept->data;
        if (is_kept && draw() % 16) return 1;
        memcpy(kept->data, memory, LINE_BYTES);
        kept->line = number, kept->filled = now;
    }
    report.from_memory += LINE_BYTES;
    return 1;
}

static void check_order(const Wave *w, const Instruction *i, u64 va, u64 stamp, int core, u64 clean)
{
    const u64 when = stamp >> 16;
    const int was_before = when <= began;
    if (was_before && when > settled) found(w, UNORDERED, i, va);
    if (when > clean && (was_before || core < 0 || (stamp & 0xffff) != (u64)core) && settings.caches) found(w, STALE, i, va);
}

static inline u32 load(Wave *w, const Instruction *i, u64 va, u32 bytes, View *view)
{
    u32 word = 0;
    if (!look(w, i, va, view)) return 0xdeadbeef;
    memcpy(&word, view->from + va % LINE_BYTES, bytes);
    const u64 stamp = view->range->stamps[(va - view->range->va) / 4], clean = i->flags & GLC ? ~0ull : cleaned_at(w->core);
    if (stamp >> 16 > least64(settled, clean)) check_order(w, i, va, stamp, w->core, clean);
    report.loaded += bytes;
    return word;
}

static u32 load_scalar(Wave *w, const Instruction *i, u64 va)
{
    const Range *range = range_of(va, 4);
    u32 word = 0xdeadbeef;
    if (!range) {
        found(w, FAULT, i, va);
        return word;
    }
    memcpy(&word, range->host + (va - range->va), 4);
    const u64 stamp = range->stamps[(va - range->va) / 4];
    if (stamp >> 16 > least64(settled, scalars_cleaned)) check_order(w, i, va, stamp, -1, scalars_cleaned);
    report.loaded += 4;
    return word;
}

static u8 *to_store(Wave *w, const Instruction *i, u64 va, u32 bytes, int core)
{
    Range *range = range_of(va, bytes);
    if (!range) {
        found(w, FAULT, i, va);
        return NULL;
    }
    range->stamps[(va - range->va) / 4] = ++now << 16 | core;
    return range->host + (va - range->va);
}

static void store(Wave *w, const Instruction *i, u64 va, u32 bytes, u32 word)
{
    u8 *memory = to_store(w, i, va, bytes, w->core);
    if (!memory) return;
    memcpy(memory, &word, bytes);
    Line *kept = &lines[w->core][va / LINE_BYTES % LINES];
    if (kept->line == va / LINE_BYTES) memcpy(kept->data + va % LINE_BYTES, &word, bytes);
}
