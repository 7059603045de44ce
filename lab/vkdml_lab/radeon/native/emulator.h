// What the files of the emulator share. They are one unit of compilation (radeon.c); shared.h and numbers.h come from Python.
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include <immintrin.h>
#include <sys/mman.h>
#include "shared.h"
#include "numbers.h"

typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
enum { MOST_LANES = 64, MOST_PENDING = 64, LDS_BYTES = 65536, LINE_BYTES = 128, LINES = 64, SCALARS = 128 };
#define LOW32 0xffffffffull
#define ADDRESS 0xffffffffffffull   // of a pointer; the rest repeats its highest bit

// How hostile the GPU is. Python sets them by their names before a process starts (environment) or while it runs (radeon_set)
typedef struct {
    long seed;
    long late;       // loads and stores end 0: at once, 1: at any time, 2: as late as they may
    long caches;     // 1: a core keeps lines until they are invalidated
    long inexact;    // 1: functions are wrong by what the guide allows, always alike for the same argument
    long resident;   // workgroups at once
    long budget;     // instructions of a dispatch
} Settings;

// A range of the GPU's addresses. stamps: of each word when it was written last (above 16 bits), and by which core
typedef struct { u64 va, size; u8 *host; u64 *stamps; } Range;

// A program as the server decoded it, for the code at an address
typedef struct Program { struct Program *next; u64 va; u32 wave, bytes, number, count; u8 *code; Instruction *instructions; } Program;

// A load, store or atomic under way. done: memory was read or written. sent: its order among the core's accesses is fixed
typedef struct {
    const Instruction *i; u64 mask; u8 done, sent; u32 words;
    u64 low, high, address[MOST_LANES]; u32 data[4][MOST_LANES];
} Pending;
typedef struct { Pending *of[MOST_PENDING]; int count; } Queue;

typedef struct Group Group;
typedef struct {
    Group *group; int index, state, pc, width, core, scc; u32 pace; u64 steps;
    u32 s[SCALARS], (*v)[MOST_LANES];
    u8 scalar_written[SCALARS], scalar_due[SCALARS];   // due: loads under way
    u8 written[256], due[256];
    Queue loads, shared, stores;                       // waited for by vmcnt, lgkmcnt, vscnt
} Wave;
enum { RUNS, AT_BARRIER, OVER };

// A workgroup. For each word of shared memory who wrote and read it last, and after how many barriers
typedef struct { u32 written_at, read_at; u16 writer, reader; u8 is_written, is_atomic; } SharedWord;
struct Group { u32 number, barriers; int wave_count; Wave *waves; u8 *lds; SharedWord *words; };

// A dispatch and the state of the GPU that it runs on
typedef struct {
    const Program *program; u32 groups[3], threads, wave, waves, lds_bytes, registers, mode, user[16], user_count, wgp;
    u8 has_group_id[3], has_group_size;
} Dispatch;

static Settings settings = {.seed = 1, .late = 1, .caches = 1, .inexact = 1, .resident = 1024, .budget = 300000000};

// Random numbers (xorshift), and the same for the same words
static u64 random_state = 88172645463325252ull;
static inline u32 draw(void)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (u32)(random_state >> 20);
}
static inline u32 hashed(u64 x) { return (u32)(((x + 1) * 0x9e3779b97f4a7c15ull) >> 33); }

static inline float float_of(u32 word) { float f; memcpy(&f, &word, 4); return f; }
static inline u32 word_of(float f) { u32 word; memcpy(&word, &f, 4); return word; }

// The interposer's: what the driver has given addresses (interpose.c)
static Range *range_of(u64 va, u64 bytes);
