// Instructions that compute: the instruction table's meanings, on all lanes at once or on scalars.
#define EACH_LANE for (int l = 0; l < lanes; l++)
// A source as the table names it: a word, a signed number, and a float
#define SOURCE(n, word) const u32 S##n = word; const i32 I##n = (i32)S##n; const float F##n = float_of(S##n);
#define WORDS SOURCE(0, a[l]) SOURCE(1, b[l]) SOURCE(2, c[l]) const u32 D = d[l]; const u64 BIT = in >> l & 1;
#define WIDE(n) const u64 Q##n = wide(w, i, &i->source[n], l);
#define OLD read_scalar(w, i, &i->to)
#define ALL_LANES (w->width == 64 ? ~0ull : LOW32)

static u64 wide(Wave *w, Instruction *i, const Operand *o, int l) {  // a source of one or two words
    if (o->kind != VECTOR) return read_scalar(w, i, o);
    return w->v[o->reg][l] | (o->words == 2 ? (u64)w->v[o->reg + 1][l] << 32 : 0);
}

// A result in each lane, of two words with `high`, or a bit of each: what a comparison gives, or the carries of a sum
static inline __attribute__((always_inline)) u64 vector_of(Wave *w, Instruction *i, u32 *result, u32 *high, const int lanes) {
    u32 copies[3][MOST_LANES];
    const u32 *a = read_vector(w, i, &i->source[0], copies[0]), *b = a, *c = a, *d = w->v[i->to.reg];
    u64 in = 0, bits = 0;
    if (i->source[1].kind) b = read_vector(w, i, &i->source[1], copies[1]);
    if (i->source[2].kind && (i->op == OP_v_cndmask_b32 || i->op > LAST_WIDE)) in = read_scalar(w, i, &i->source[2]);
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
static u64 vector(Wave *w, Instruction *i, u32 *result, u32 *high) {
    return w->width == 64 ? vector_of(w, i, result, high, 64) : vector_of(w, i, result, high, 32);
}

static void scalar(Wave *w, Instruction *i) {
    const u64 Q0 = read_scalar(w, i, &i->source[0]), Q1 = read_scalar(w, i, &i->source[1]);
    SOURCE(0, (u32)Q0) SOURCE(1, (u32)Q1)
    u64 D = 0;
    u32 SCC = w->scc;
    switch (i->op) {
#include "scalar.inc"
    }
    write_scalar(w, i, &i->to, D);
    w->scc = (SCC ^ (i->to.kind ? 0 : broken(i, 1))) & 1;
}

static inline u32 atomic_of(int number, u32 O, u32 X) {
    switch (number) {
#include "atomic.inc"
    }
    return O;
}
