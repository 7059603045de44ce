// Instructions that compute: the instruction table's meanings, on all lanes at once or on scalars.
#define EACH_LANE for (int l = 0; l < lanes; l++)
#define ALL_LANES (w->width == 64 ? ~0ull : LOW32)

// A result in each lane, or a bit of each: what a comparison gives, or the carries of a sum
static inline __attribute__((always_inline)) u64 vector_of(Wave *w, Instruction *i, u32 *result, const int lanes) {
    u32 copies[3][MOST_LANES];
    const u32 *a = read_vector(w, i, &i->source[0], copies[0]), *b = a, *c = a, *d = w->v[i->to.reg];
    u64 in = 0, bits = 0;
    if (i->source[1].kind) b = read_vector(w, i, &i->source[1], copies[1]);
    if (i->source[2].kind && (i->op == OP_v_cndmask_b32 || i->op > LAST_VECTOR)) in = read_lanes(w, i, &i->source[2]);
    else if (i->source[2].kind) c = read_vector(w, i, &i->source[2], copies[2]);
    if (i->op == OP_v_fmac_f32) check_vector(w, i, i->to.reg, 1);
    switch (i->op) {
#include "vector.inc"
    }
    const float times = i->flags & TIMES2 ? 2.0f : i->flags & TIMES4 ? 4.0f : 0.5f;
    if (i->flags & (TIMES2 | TIMES4 | HALVED)) EACH_LANE result[l] = word_of(float_of(result[l]) * times);
    if (i->flags & CLAMP) EACH_LANE result[l] = word_of(clamped(float_of(result[l])));
    if (i->to.modifiers & HALF) EACH_LANE result[l] = to_half(float_of(result[l]));
    if (i->to.bits) EACH_LANE result[l] = placed(i, d[l], result[l]);
    return bits & exec_of(w);
}

// Apart for each width: the compiler makes vector instructions of loops whose lengths it knows
static u64 vector(Wave *w, Instruction *i, u32 *result) {
    return w->width == 64 ? vector_of(w, i, result, 64) : vector_of(w, i, result, 32);
}

static void wide_of(Wave *w, Instruction *i, u32 *result, u32 *high) {
    u64 q[3][MOST_LANES];
    const int lanes = w->width;
    for (int n = 0; n < 3; n++) {  // of one or two words
        const Operand *o = &i->source[n];
        const u64 value = read_scalar(w, i, o);
        if (o->kind == VECTOR) check_vector(w, i, o->reg, o->words);
        EACH_LANE q[n][l] = o->kind == VECTOR ? w->v[o->reg][l] | (o->words == 2 ? (u64)w->v[o->reg + 1][l] << 32 : 0) : value;
    }
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
