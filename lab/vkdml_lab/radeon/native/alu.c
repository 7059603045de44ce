// Instructions that compute: the instruction table's meanings, on all lanes at once or on scalars.
#define EACH_LANE for (int l = 0; l < lanes; l++)
#define LOW24(x) ((x) & 0xffffff)
#define SIGNED24(x) ((i32)((x) << 8) >> 8)
#define SIGNED16(x) ((u32)(i16)(x))
#define WORD(f) word_of(f)
#define ALL_LANES (w->width == 64 ? ~0ull : LOW32)
#define HALF_OF_D(x) (i->to.modifiers & HIGH ? (D & 0xffff) | (x) << 16 : (D & 0xffff0000) | ((x) & 0xffff))

#define S0 a[l]
#define S1 b[l]
#define S2 c[l]
#define D d[l]
#define I0 ((i32)a[l])
#define I1 ((i32)b[l])
#define F0 float_of(a[l])
#define F1 float_of(b[l])
#define F2 float_of(c[l])
#define BIT (in >> l & 1)
static inline __attribute__((always_inline)) void vector_of(Wave *w, const Instruction *i, u32 *result, const int lanes)
{
    u32 copies[3][MOST_LANES];
    const u32 *a = read_vector(w, i, &i->source[0], copies[0]), *b = a, *c = a, *d = a;
    u64 in = 0;
    if (i->source[1].kind) b = read_vector(w, i, &i->source[1], copies[1]);
    if (i->op == OP_v_cndmask_b32) in = read_lanes(w, i, &i->source[2]);
    else if (i->source[2].kind) c = read_vector(w, i, &i->source[2], copies[2]);
    if (i->to.kind == VECTOR) d = w->v[i->to.reg];
    if (i->op == OP_v_fmac_f32) check_vector(w, i, i->to.reg, 1);
    switch (i->op) {
#include "vector.inc"
    }
    if (i->flags & (TIMES2 | TIMES4 | HALVED)) {
        const float by = i->flags & TIMES2 ? 2.0f : i->flags & TIMES4 ? 4.0f : 0.5f;
        EACH_LANE result[l] = word_of(float_of(result[l]) * by);
    }
    if (i->flags & CLAMP && i->flags & IS_FLOAT)  // NaN becomes 0: DX10_CLAMP, which the driver sets
        EACH_LANE result[l] = word_of(float_of(result[l]) > 0 ? smaller(float_of(result[l]), 1) : 0);
    if (i->flags & TO_HIGH) EACH_LANE result[l] <<= 16;
}

static u64 compare_of(Wave *w, const Instruction *i)
{
    u32 copies[2][MOST_LANES];
    const u32 *a = read_vector(w, i, &i->source[0], copies[0]), *b = read_vector(w, i, &i->source[1], copies[1]);
    const int lanes = w->width;
    u64 bits = 0;
    switch (i->op) {
#include "comparing.inc"
    }
    return bits & exec_of(w);
}

static u64 carry_of(Wave *w, const Instruction *i, u32 *result)
{
    u32 copies[2][MOST_LANES];
    const u32 *a = read_vector(w, i, &i->source[0], copies[0]), *b = read_vector(w, i, &i->source[1], copies[1]);
    const u64 in = i->source[2].kind ? read_lanes(w, i, &i->source[2]) : 0;
    const int lanes = w->width;
    u64 bits = 0;
    switch (i->op) {
#include "carrying.inc"
    }
    return bits & exec_of(w);
}
#undef S0
#undef S1
#undef S2
#undef D
#undef I0
#undef I1
#undef F0
#undef F1
#undef F2
#undef BIT

// A source of one or two words
static void read_wide(Wave *w, const Instruction *i, Operand o, u64 *to)
{
    u32 copy[MOST_LANES];
    if (o.kind != VECTOR) {
        const u64 value = read_scalar(w, i, &o);
        for (int l = 0; l < MOST_LANES; l++) to[l] = value;
        return;
    }
    const int words = o.words;
    o.words = 1;
    const u32 *low = read_vector(w, i, &o, copy);
    for (int l = 0; l < MOST_LANES; l++) to[l] = low[l];
    if (words < 2) return;
    o.reg++;
    const u32 *high = read_vector(w, i, &o, copy);
    for (int l = 0; l < MOST_LANES; l++) to[l] |= (u64)high[l] << 32;
}

#define Q0 q[0][l]
#define Q1 q[1][l]
#define Q2 q[2][l]
static void wide_of(Wave *w, const Instruction *i, u32 *result, u32 *high)
{
    u64 q[3][MOST_LANES];
    const int lanes = w->width;
    for (int n = 0; n < 3; n++) read_wide(w, i, i->source[n], q[n]);
    switch (i->op) {
#include "wide.inc"
    }
}
#undef Q0
#undef Q1
#undef Q2

#define Q0 first
#define Q1 second
#define S0 ((u32)first)
#define S1 ((u32)second)
#define I0 ((i32)first)
#define I1 ((i32)second)
#define D to
#define SCC scc
#define OLD read_scalar(w, i, &i->to)
static void scalar(Wave *w, const Instruction *i)
{
    const u64 first = read_scalar(w, i, &i->source[0]), second = read_scalar(w, i, &i->source[1]);
    u64 to = 0;
    u32 scc = w->scc;
    switch (i->op) {
#include "scalar.inc"
    }
    write_scalar(w, i, &i->to, to);
    w->scc = scc & 1;
}
#undef Q0
#undef Q1
#undef S0
#undef S1
#undef I0
#undef I1
#undef D
#undef SCC
#undef OLD

static inline u32 atomic_of(int number, u32 O, u32 X)
{
    switch (number) {
#include "atomic.inc"
    }
    return O;
}

// "V_FMA_MIX_F32" and its like: of each source the halves and the word may be taken
static void fma_mix(Wave *w, const Instruction *i, u32 *result)
{
    u32 copies[3][MOST_LANES];
    float values[3][MOST_LANES];
    for (int n = 0; n < 3; n++) {
        Operand o = i->source[n];
        o.modifiers |= HALF;
        const u32 *words = read_vector(w, i, &o, copies[n]), modifiers = i->source[n].modifiers;
        for (int l = 0; l < MOST_LANES; l++) {
            float value = modifiers & HALF ? from_half(modifiers & HIGH ? words[l] >> 16 : words[l]) : float_of(words[l]);
            if (modifiers & ABS) value = fabsf(value);
            values[n][l] = modifiers & NEG ? -value : value;
        }
    }
    for (int l = 0; l < MOST_LANES; l++) {
        float sum = fmaf(values[0][l], values[1][l], values[2][l]);
        if (i->flags & CLAMP) sum = sum > 0 ? smaller(sum, 1) : 0;
        const u32 old = w->v[i->to.reg][l];
        result[l] = i->op == OP_v_fma_mix_f32 ? word_of(sum) : i->op == OP_v_fma_mixlo_f16 ? (old & 0xffff0000) | to_half(sum)
                                                                                        : (old & 0xffff) | to_half(sum) << 16;
    }
}
