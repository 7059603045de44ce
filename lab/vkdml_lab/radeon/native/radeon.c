// The emulator, one library: loaded before the driver, it executes what the driver submits (README.md). shared.h, numbers.h and the
// files *.inc are written by Python.
#define _GNU_SOURCE
#include <errno.h>
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
#include "shared.h"
#include "numbers.h"
enum { MOST_LANES = 64, MOST_PENDING = 64, LINE_BYTES = 128, LINES = 256, SCALARS = 128, VECTORS = 256, LDS_WORDS = 1 << 14,
       SCRATCH_WORDS = 1 << 10 };
#define LOW32 0xffffffffull
#define ADDRESS 0xffffffffffffull   // of a pointer; the rest repeats its highest bit

// Of a word the last accesses, as stamps (clocks.c): the write, and the reads of two waves
typedef struct { u64 written, read, other_read; } Word;
typedef struct { u64 va, size; u8 *host; Word *words; } Range;  // of the GPU's addresses

// A load, store or atomic under way. stamp: when memory was read or written, and by whom; 0 before. sent: its order among the
// core's accesses is fixed
typedef struct {
    Instruction *i;
    u8 loads, sent;
    u32 words;
    u64 stamp, mask, address[MOST_LANES];
    u32 data[4][MOST_LANES];
} Pending;
typedef struct { Pending *of[MOST_PENDING]; int count; } Queue;

enum { LOADS, SHARED, STORES, SCALAR_LOADS, KINDS };  // RDNA 4's loadcnt, dscnt, storecnt and kmcnt

// due: loads under way. product: where the last instruction of vectors put a product of matrices. ordered, over: at the
// last barrier, until when its accesses of each kind were; clock: until when others' are, if it knows more than its workgroup
typedef struct Group Group;
typedef struct {
    Group *group;
    int index, state, pc, width, core, scc;
    u32 pace, scratch_words, product, product_words, s[SCALARS];
    u64 steps, ordered[KINDS], over[KINDS], *clock;
    u8 scalar_written[SCALARS], scalar_due[SCALARS], written[VECTORS], due[VECTORS];
    Queue queues[KINDS];
    u32 v[VECTORS][MOST_LANES], scratch[SCRATCH_WORDS][MOST_LANES];  // memory of the system's only where they are used
} Wave;
enum { RUNS, AT_BARRIER, OVER };

struct Group {  // a workgroup. lds: its shared memory, of which the words and what is known of them are below
    u32 number;
    int wave_count, core;
    Wave *waves;
    u64 began, *clock;
    Range lds;
    u32 data[LDS_WORDS];
    Word words[LDS_WORDS];
};

typedef struct {
    const Program *program;
    u32 groups[3], threads, wave, waves, lds_bytes, scratch_words, registers, mode, user[16], wgp, starts_with;
} Dispatch;

static u64 random_state = 88172645463325252ull;
static inline u32 draw(void) {  // a random number (xorshift)
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (u32)(random_state >> 20);
}
static inline float float_of(u32 word) { float f; memcpy(&f, &word, 4); return f; }
static inline u32 word_of(float f) { u32 word; memcpy(&word, &f, 4); return word; }

static void *reserve(size_t bytes) {  // zeros, which take memory where they are used
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static Range *range_of(u64 va, u64 bytes);
#include "arithmetic.c"
#include "registers.c"
#include "alu.c"
#include "clocks.c"
#include "caches.c"
#include "memory.c"
#include "matrices.c"
#include "waves.c"
#include "server.c"
#include "packets.c"
#include "syncs.c"
#include "interpose.c"
#include "control.c"
