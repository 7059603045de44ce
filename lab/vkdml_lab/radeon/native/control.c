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
