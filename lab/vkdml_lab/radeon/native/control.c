// How Python sets what the GPU does, changes programs, and runs single instructions.
#define PUBLIC __attribute__((visibility("default")))
static const char *const SETTINGS[] = {"SEED", "LATE", "CACHES", "INEXACT", "RESIDENT", "BUDGET"};

PUBLIC void radeon_set(int number, long value) {
    (&settings.seed)[number] = value;
    if (number == 0) random_state = 88172645463325252ull ^ (u64)value * 0x9e3779b97f4a7c15ull, draw(), draw();
}

__attribute__((constructor)) static void read_environment(void) {  // VKDML_RADEON_SEED=1 and so on
    for (int n = 0; n < (int)(sizeof SETTINGS / sizeof *SETTINGS); n++) {
        char name[64];
        snprintf(name, sizeof name, "VKDML_RADEON_%s", SETTINGS[n]);
        if (getenv(name)) radeon_set(n, atol(getenv(name)));
    }
}

PUBLIC Program *radeon_programs(void) { return programs; }

// Waits until nothing is executed. Returns how many findings there were since the last time, and their kinds as bits
PUBLIC u64 radeon_wait(void) {
    pthread_mutex_lock(&lock);
    wait_until_idle();
    const u64 kinds = kinds_found;
    kinds_found = 0;
    pthread_mutex_unlock(&lock);
    return kinds;
}

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
