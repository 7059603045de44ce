// How Python sets what the GPU does, and changes programs of its own process.
#define PUBLIC __attribute__((visibility("default")))

static const struct { const char *name; long *value; } NAMES[] = {
    {"seed", &settings.seed}, {"late", &settings.late}, {"caches", &settings.caches}, {"inexact", &settings.inexact},
    {"resident", &settings.resident}, {"budget", &settings.budget}};

PUBLIC int radeon_set(const char *name, long value)
{
    for (size_t n = 0; n < sizeof NAMES / sizeof *NAMES; n++)
        if (!strcmp(name, NAMES[n].name)) {
            *NAMES[n].value = value;
            if (n == 0) random_state = 88172645463325252ull ^ (u64)value * 0x9e3779b97f4a7c15ull, draw(), draw();
            return 1;
        }
    return 0;
}

// VKDML_RADEON_SEED=1 and so on, as the process starts
__attribute__((constructor)) static void read_environment(void)
{
    char name[64] = "VKDML_RADEON_";
    for (size_t n = 0; n < sizeof NAMES / sizeof *NAMES; n++) {
        const size_t before = strlen("VKDML_RADEON_");
        for (size_t k = 0; k <= strlen(NAMES[n].name); k++)
            name[before + k] = NAMES[n].name[k] ? NAMES[n].name[k] - 'a' + 'A' : 0;
        const char *value = getenv(name);
        if (value) radeon_set(NAMES[n].name, atol(value));
    }
}

PUBLIC Program *radeon_programs(void) { return programs; }

// Waits until nothing is executed
PUBLIC void radeon_wait(void)
{
    pthread_mutex_lock(&lock);
    wait_until_idle();
    pthread_mutex_unlock(&lock);
}

// Runs a program on one wave with these registers, for tests. lds: shared memory of 64 KiB, all of it written
PUBLIC int radeon_run(Instruction *code, u32 count, u32 wave, u32 mode, u32 (*v)[MOST_LANES], u32 *s, u32 *scc, u32 *lds)
{
    lines = lines ? lines : calloc(MOST_CORES, sizeof *lines);
    const Program program = {.wave = wave, .count = count, .instructions = code};
    const Dispatch d = {.program = &program, .groups = {1, 1, 1}, .threads = wave, .wave = wave, .waves = 1, .mode = mode};
    Wave w = {.v = v};
    Group group = {.wave_count = 1, .waves = &w, .lds = (u8 *)lds, .words = calloc(LDS_BYTES / 4, sizeof *group.words)};
    for (u32 n = 0; n < LDS_BYTES / 4; n++) group.words[n].is_written = 1;
    memset(&report, 0, sizeof report);
    w.group = &group, w.width = wave, w.scc = *scc;
    memcpy(w.s, s, sizeof w.s);
    memset(w.written, 1, sizeof w.written), memset(w.scalar_written, 1, sizeof w.scalar_written);
    const u32 csr = _mm_getcsr();
    set_denormals(mode);
    lds_of_dispatch = LDS_BYTES;
    while (w.state == RUNS && !report.found_count) step(&w, &d);
    _mm_setcsr(csr);
    memcpy(s, w.s, sizeof w.s);
    *scc = w.scc;
    free(group.words);
    return report.found_count ? (int)report.found[0].kind : -1;
}
