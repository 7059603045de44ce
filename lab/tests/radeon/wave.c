// The emulator, with functions that run single instructions, and workgroups.
#include "radeon.c"

// Runs instructions on one wave with these registers and 64 KiB of shared memory. Returns the kind of what was found, or -1.
// queued: accesses of each kind that were under way before the last instruction
PUBLIC int radeon_run(Instruction *code, u32 wave, u32 mode, u32 (*v)[MOST_LANES], u32 *s, u32 *scc, u32 *lds, u32 *queued) {
    const Program program = {.wave = wave, .instructions = code};
    const Dispatch d = {.program = &program, .waves = 1};
    static Wave w;
    static Group group = {.wave_count = 1, .waves = &w, .lds = {0, sizeof group.data, (u8 *)group.data, group.words}};
    const u32 csr = _mm_getcsr();
    all_waves = &w, wave_count = group_waves = 1;
    w = (Wave){.group = &group, .width = wave, .scc = *scc, .scratch_words = SCRATCH_WORDS};
    for (u32 n = 0; n < LDS_WORDS; n++) group.words[n] = (Word){.written = BYTES}, group.data[n] = lds[n];
    memcpy(w.s, s, sizeof w.s), memcpy(w.v, v, sizeof w.v);
    memset(w.written, 1, sizeof w.written), memset(w.scalar_written, 1, sizeof w.scalar_written);
    report = (Report){0};
    set_denormals(mode);
    while (w.state == RUNS && !report.found_count) {
        step(&w, &d);
        for (int kind = 0; w.state == RUNS && kind < KINDS; kind++) queued[kind] = w.queues[kind].count;
    }
    _mm_setcsr(csr);
    memcpy(s, w.s, sizeof w.s), memcpy(v, w.v, sizeof w.v);
    *scc = w.scc;
    return report.found_count ? (int)report.found[0].kind : -1;
}

// Runs workgroups on a buffer, whose descriptor is in s[0:3]; s4 is a workgroup's number. Returns the kinds of findings, as bits
PUBLIC u64 radeon_run_groups(Instruction *code, u32 count, u32 groups, u32 waves, u8 *memory, u32 bytes) {
    enum { VA = 1 << 16, LDS_BYTES = 1 << 10 };
    const Program program = {.wave = 32, .count = count, .instructions = code};
    const Dispatch d = {.program = &program, .groups = {groups, 1, 1}, .threads = 32 * waves, .wave = 32, .waves = waves,
                        .lds_bytes = LDS_BYTES, .scratch_words = SCRATCH_WORDS, .registers = 32, .mode = 0xf0, .user = {VA, 0, bytes}, .starts_with = 1 << 7 | 4 << 1};
    Word *words = calloc(bytes / 4, sizeof *words);
    ranges[0] = (Range){VA, bytes, memory, words}, range_count = 1;
    report = (Report){0};
    invalidate(1, 1);
    settled = now;
    run_waves(&d);
    range_count = 0;
    free(words);
    return report.kinds;
}
