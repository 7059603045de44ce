// How Python sets what the GPU does, changes programs, and runs single instructions.
#define PUBLIC __attribute__((visibility("default")))

PUBLIC void radeon_set(int number, long value) {
    (&settings.seed)[number] = value;
    if (number == 0) random_state = 88172645463325252ull ^ (u64)value * 0x9e3779b97f4a7c15ull, draw(), draw();
}

__attribute__((constructor)) static void load_library(void) {
    if (getenv("VKDML_RADEON")) pthread_atfork(before_fork, in_parent, in_child);
    for (int n = 0; n < (int)(sizeof VARIABLES / sizeof *VARIABLES); n++)
        if (getenv(VARIABLES[n])) radeon_set(n, atol(getenv(VARIABLES[n])));
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
