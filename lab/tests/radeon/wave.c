// The emulator, with a function that runs single instructions.
#include "radeon.c"

// Runs instructions on one wave with these registers and 64 KiB of shared memory. Returns the kind of what was found, or -1
PUBLIC int radeon_run(Instruction *code, u32 wave, u32 mode, u32 (*v)[MOST_LANES], u32 *s, u32 *scc, u32 *lds) {
    enum { LDS_WORDS = 1 << 14 };
    const Program program = {.wave = wave, .instructions = code};
    const Dispatch d = {.program = &program, .waves = 1};
    static Wave w;
    static SharedWord words[LDS_WORDS];
    Group group = {.wave_count = 1, .waves = &w, .lds = (u8 *)lds, .lds_bytes = 4 * LDS_WORDS, .words = words};
    const u32 csr = _mm_getcsr();
    w = (Wave){.v = v, .group = &group, .width = wave, .scc = *scc};
    for (u32 n = 0; n < LDS_WORDS; n++) words[n] = (SharedWord){.is_written = 1};
    memcpy(w.s, s, sizeof w.s);
    memset(w.written, 1, sizeof w.written), memset(w.scalar_written, 1, sizeof w.scalar_written);
    report = (Report){0};
    set_denormals(mode);
    while (w.state == RUNS && !report.found_count) step(&w, &d);
    _mm_setcsr(csr);
    memcpy(s, w.s, sizeof w.s);
    *scc = w.scc;
    return report.found_count ? (int)report.found[0].kind : -1;
}
