// Instructions that compute: the instruction table's meanings, on all lanes at once or on scalars.
#define EACH_LANE for (int l = 0; l < lanes; l++)
#define ALL_LANES (w->width == 64 ? ~0ull : LOW32)

static inline __attribute__((always_inline)) void vector_of(Wave *w, Instruction *i, u32 *result, const int lanes) {
    u32 copies[3][MOST_LANES];
    const u32 *a = read_vector(w, i, &i->source[0], copies[0]), *b = a, *c = a, *d = w->v[i->to.reg];
    u64 in = 0;
    if (i->source[1].kind) b = read_vector(w, i, &i->source[1], copies[1]);
    if (i->op == OP_v_cndmask_b32) in = read_lanes(w, i, &i->source[2]);
    else if (i->source[2].kind) c = read_vector(w, i, &i->source[2], copies[2]);
    if (i->op == OP_v_fmac_f32) check_vector(w, i, i->to.reg, 1);
    switch (i->op) {
#include "vector.inc"
    }
    const float times = i->flags & TIMES2 ? 2.0f : i->flags & TIMES4 ? 4.0f : 0.5f;
    if (i->flags & (TIMES2 | TIMES4 | HALVED)) EACH_LANE result[l] = word_of(float_of(result[l]) * times);
    if (i->flags & CLAMP) EACH_LANE result[l] = word_of(clamped(float_of(result[l])));
    if (i->flags & TO_LOW) EACH_LANE result[l] &= 0xffff;
    if (i->flags & TO_HIGH) EACH_LANE result[l] <<= 16;
    if (i->flags & KEEPS) EACH_LANE result[l] |= d[l] & (i->flags & TO_HIGH ? 0xffff : 0xffff0000);
}

// Apart for each width: the compiler makes vector instructions of loops whose lengths it knows
static void vector(Wave *w, Instruction *i, u32 *result) {
    if (w->width == 64) vector_of(w, i, result, 64);
    else vector_of(w, i, result, 32);
}

// A comparison's bits, or a sum and its carries
static u64 bits_of(Wave *w, Instruction *i, u32 *result) {
    u32 copies[2][MOST_LANES];
    const u32 *a = read_vector(w, i, &i->source[0], copies[0]), *b = read_vector(w, i, &i->source[1], copies[1]);
    const u64 in = i->source[2].kind ? read_lanes(w, i, &i->source[2]) : 0;
    const int lanes = w->width;
    u64 bits = 0;
    switch (i->op) {
#include "comparing.inc"
#include "carrying.inc"
    }
    return bits & exec_of(w);
}

static void read_wide(Wave *w, Instruction *i, Operand o, u64 *to) {  // of one or two words
    u32 copies[2][MOST_LANES];
    const int words = o.words, lanes = MOST_LANES;
    const u64 value = o.kind == VECTOR ? 0 : read_scalar(w, i, &o);
    EACH_LANE to[l] = value;
    o.words = 1;
    for (int n = 0; o.kind == VECTOR && n < words; n++, o.reg++) {
        const u32 *word = read_vector(w, i, &o, copies[n]);
        EACH_LANE to[l] |= (u64)word[l] << 32 * n;
    }
}

static void wide_of(Wave *w, Instruction *i, u32 *result, u32 *high) {
    u64 q[3][MOST_LANES];
    const int lanes = w->width;
    for (int n = 0; n < 3; n++) read_wide(w, i, i->source[n], q[n]);
    switch (i->op) {
#include "wide.inc"
    }
}

static void scalar(Wave *w, Instruction *i) {
    const u64 first = read_scalar(w, i, &i->source[0]), second = read_scalar(w, i, &i->source[1]);
    u64 to = 0;
    u32 scc = w->scc;
    switch (i->op) {
#include "scalar.inc"
    }
    write_scalar(w, i, &i->to, to);
    w->scc = (scc ^ (i->to.kind ? 0 : broken(i, 1))) & 1;
}

static inline u32 atomic_of(int number, u32 O, u32 X) {
    switch (number) {
#include "atomic.inc"
    }
    return O;
}
