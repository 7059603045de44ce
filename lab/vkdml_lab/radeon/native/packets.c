// The commands that the driver submits: packets of type 3, of which those that a queue for compute gets are executed ("PM4").
enum { SET_SH_REG = 0x76, SET_SH_REG_INDEX = 0x9b, DISPATCH_DIRECT = 0x15, INDIRECT_BUFFER = 0x3f, WRITE_DATA = 0x37,
       DMA_DATA = 0x50, RELEASE_MEM = 0x49, ACQUIRE_MEM = 0x58, COPY_DATA = 0x40, EVENT_WRITE = 0x46, NOP = 0x10,
       PFP_SYNC_ME = 0x42, WAIT_REG_MEM = 0x3c, CONTEXT_CONTROL = 0x28, SET_CONTEXT_REG = 0x69, SET_UCONFIG_REG = 0x79,
       SET_UCONFIG_REG_INDEX = 0x7a, SET_CONTEXT_REG_PAIRS = 0xb8, SET_CONTEXT_REG_PAIRS_PACKED = 0xb9,
       SET_SH_REG_PAIRS = 0xba, SET_UCONFIG_REG_PAIRS = 0xbe, CLEAR_STATE = 0x12 };
enum { CS_PARTIAL_FLUSH = 7, ONE_WORD_NOP = (int)0xffff1000 };
// Registers of compute, in words from 0xb000
enum { THREADS = 0x81c / 4, PROGRAM = 0x830 / 4, RSRC1 = 0x848 / 4, RSRC2 = 0x84c / 4, SCRATCH_SIZE = 0x860 / 4, USER_DATA = 0x900 / 4,
       REGISTERS = 0x1000 / 4 };
static u32 sh[REGISTERS];
static u64 kinds_found;  // bits

static u64 nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void refuse(const char *text, u32 value) {
    fprintf(stderr, "vkdml radeon: %s: %#x\n", text, value);
    found(REFUSED, NULL, value);
}

static void dispatch(const u32 *groups, u32 initiator) {
    const u32 r1 = sh[RSRC1], r2 = sh[RSRC2], wave = initiator >> 15 & 1 ? 32 : 64, granule = wave == 32 ? 8 : 4;
    Dispatch d = {.wave = wave, .groups = {groups[0], groups[1], groups[2]}, .threads = sh[THREADS] & 0xffff,
                  .lds_bytes = (r2 >> 15 & 511) * 512, .registers = ((r1 & 63) + 1) * granule, .mode = r1 >> 12 & 255,
                  .wgp = r1 >> 29 & 1, .starts_with = r2};
    const u64 start = nanoseconds();
    d.waves = (d.threads + wave - 1) / wave;
    if (r2 & 1) d.scratch_words = (sh[SCRATCH_SIZE] >> 12 & 0x7fff) * (settings.rdna == 2 ? 256 : 64) / wave;
    memcpy(d.user, &sh[USER_DATA], sizeof d.user);
    d.program = program_at(((u64)sh[PROGRAM] << 8 | (u64)(sh[PROGRAM + 1] & 0xff) << 40) & ADDRESS, wave);
    if (!groups[0] || !groups[1] || !groups[2]) return;
    if (!d.program || !d.program->count) refuse("no program that is known is at", sh[PROGRAM]);
    else if ((sh[THREADS + 1] & 0xffff) > 1 || (sh[THREADS + 2] & 0xffff) > 1) refuse("a workgroup of several dimensions", sh[THREADS + 1]);
    else if (d.scratch_words > SCRATCH_WORDS) refuse("words of scratch memory for each lane", d.scratch_words);
    else if (d.program->registers > d.registers) found(OUTSIDE_REGISTERS, NULL, d.registers);
    else run_waves(&d);
    report.program = d.program ? d.program->number : ~0u, report.nanoseconds = nanoseconds() - start;
}

static void send_report(void) {
    kinds_found |= report.kinds;
    if (report.executed || report.found_count) request(REPORT, 0, &report, sizeof report);
    report = (Report){0};
}

static u8 *command_memory(u64 va, u64 bytes, int writes) {
    Range *range = memory_at(NULL, NULL, va &= ADDRESS, bytes);
    if (!range) return NULL;
    Word *words = &range->words[(va - range->va) / 4];
    const u64 stamp = ++now << TIME | (u64)COMMANDS << PLACE | BYTES;
    for (u64 n = 0; n < (bytes + 3) / 4; n++) {
        if ((words[n].written >> PLACE & 0xffff) != COMMANDS) check_race(NULL, NULL, va + 4 * n, words[n].written, STORES, BYTES);
        if (writes) check_race(NULL, NULL, va + 4 * n, words[n].read, LOADS, BYTES), words[n].written = stamp;
    }
    return range->host + (va - range->va);
}

static void write_words(u64 va, const void *data, u64 bytes) {
    u8 *memory = command_memory(va, bytes, 1);
    if (memory) memcpy(memory, data, bytes);
}

static void copy(const u32 *body) {  // DMA_DATA
    const u64 bytes = body[5] & 0x3ffffff;
    const int fills = (body[0] >> 29 & 3) == 2;
    const u8 *from = fills || !bytes ? NULL : command_memory(body[1] | (u64)body[2] << 32, bytes, 0);
    u8 *to = bytes ? command_memory(body[3] | (u64)body[4] << 32, bytes, 1) : NULL;
    if (to && from) memmove(to, from, bytes);
    for (u64 n = 0; to && fills && n < bytes; n++) to[n] = body[1] >> n % 4 * 8;
}

// Caches are invalidated by this alone: what ACQUIRE_MEM and RELEASE_MEM say
static void invalidate(int scalars, int vectors) {
    now++;
    if (scalars) scalars_cleaned = now;
    for (int n = 0; vectors && n < MOST_CORES; n++) cleaned[n] = now;
}

// Until a word in memory, which a packet before or the host writes, is as a packet says
static void wait_for_memory(const u32 *body) {
    const u64 va = (body[1] | (u64)body[2] << 32) & ADDRESS, end = nanoseconds() + settings.budget * 1000ull;
    const Range *range = memory_at(NULL, NULL, va, 4);
    for (int is_so = !range; !is_so; usleep(100)) {
        const u32 word = *(volatile u32 *)(range->host + (va - range->va)) & body[4], other = body[3];
        const int so[8] = {1, word < other, word <= other, word == other, word != other, word >= other, word > other, 1};
        is_so = so[body[0] & 7];
        if (!is_so && nanoseconds() > end) return refuse("nothing ends a wait for memory, in microseconds", settings.budget);
    }
}

static void execute(u64 va, u64 bytes);

// Returns whether the rest of the buffer is executed
static int packet(u32 op, const u32 *body, u32 count) {
    const u64 time = nanoseconds() / 10, what = op == RELEASE_MEM ? body[1] >> 29 & 7 : 0;  // 1 and 2: a number, 3: the time
    switch (op) {
    case SET_SH_REG: case SET_SH_REG_INDEX:
        for (u32 n = 1; n < count; n++) sh[((body[0] & 0xffff) + n - 1) % REGISTERS] = body[n];
        break;
    case SET_SH_REG_PAIRS:
        for (u32 n = 0; n + 1 < count; n += 2) sh[(body[n] & 0xffff) % REGISTERS] = body[n + 1];
        break;
    case DISPATCH_DIRECT:
        dispatch(body, body[3]);
        send_report();
        break;
    case INDIRECT_BUFFER:
        execute(body[0] | (u64)(body[1] & 0xffff) << 32, (body[2] & 0xfffff) * 4);
        return !(body[2] >> 20 & 1);  // a chain: what follows is padding
    case WRITE_DATA: write_words(body[1] | (u64)body[2] << 32, body + 3, (count - 3) * 4); break;
    case DMA_DATA: copy(body); break;
    case ACQUIRE_MEM: invalidate(body[6] >> 7 & 1, body[6] >> 8 & 1); break;
    case EVENT_WRITE:
        if ((body[0] & 63) == CS_PARTIAL_FLUSH) settled = now;
        break;
    case RELEASE_MEM:
        invalidate(body[0] >> 30 & 1, body[0] >> 14 & 1);
        if (what >= 1 && what <= 3) write_words(body[2] | (u64)body[3] << 32, what == 3 ? &time : (const void *)&body[4], what == 1 ? 4 : 8);
        break;
    case COPY_DATA:
        if ((body[0] & 15) == 9) write_words(body[3] | (u64)body[4] << 32, &time, 8);
        else refuse("COPY_DATA of", body[0]);
        break;
    case WAIT_REG_MEM:
        if (body[0] >> 4 & 1) wait_for_memory(body);  // else for a register
        break;
    case NOP: case PFP_SYNC_ME: case CONTEXT_CONTROL: case SET_CONTEXT_REG: case SET_UCONFIG_REG: case SET_UCONFIG_REG_INDEX:
    case SET_CONTEXT_REG_PAIRS: case SET_CONTEXT_REG_PAIRS_PACKED: case SET_UCONFIG_REG_PAIRS: case CLEAR_STATE: break;
    default: refuse("packet", op);
    }
    return 1;
}

static void execute(u64 va, u64 bytes) {
    const Range *range = memory_at(NULL, NULL, va &= ADDRESS, bytes);
    if (!range) return;
    const u32 *words = (const u32 *)(range->host + (va - range->va)), *end = words + bytes / 4;
    while (words < end) {
        const u32 header = *words++, op = header >> 8 & 255, count = (header >> 16 & 0x3fff) + 1;
        if (header >> 30 == 2 || header == (u32)ONE_WORD_NOP) continue;
        if (header >> 30 != 3 || words + count > end) return refuse("no packet", header);
        if (!packet(op, words, count)) return;
        words += count;
    }
}

// The kernel waits for the submission before, and invalidates all caches
static void submitted(u64 va, u64 bytes) {
    invalidate(1, 1);
    settled = now;
    execute(va, bytes);
    send_report();
}
