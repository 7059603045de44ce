// The functions that the instruction table's meanings use.
static inline u32 least(u32 a, u32 b) { return a < b ? a : b; }
static inline u32 most(u32 a, u32 b) { return a > b ? a : b; }
static inline u32 low24(u32 a) { return a & 0xffffff; }
static inline i32 signed24(u32 a) { return (i32)(a << 8) >> 8; }
static inline u32 signed16(u32 a) { return (u32)(i16)a; }
static inline int overflows(i64 sum) { return sum != (i32)sum; }
static inline u32 reversed(u32 word) {
    u32 to = 0;
    for (int n = 0; n < 32; n++) to |= (word >> n & 1) << (31 - n);
    return to;
}
static inline u64 replicated(u32 word) { return 3 * _pdep_u64(word, 0x5555555555555555ull); }  // each bit twice
static inline u32 field(u32 word, u32 from, u32 bits) { return word >> from & (bits >= 32 ? ~0u : (1u << bits) - 1); }
static inline u32 signed_field(u32 word, u32 from, u32 bits) {
    const u32 left = bits >= 32 ? 0 : 32 - bits;
    return bits ? (u32)((i32)(word >> from << left) >> left) : 0;
}

// "V_PERM_B32": each byte of the selector takes one of 8 bytes, a sign 8 times, 0 or 255
static u32 permuted(u32 high, u32 low, u32 selector) {
    const u64 bytes = (u64)high << 32 | low;
    u32 to = 0;
    for (int n = 0; n < 4; n++) {
        const u32 of = selector >> 8 * n & 255;
        const u32 byte = of < 8 ? bytes >> 8 * of & 255 : of < 12 ? (bytes >> (16 * (of - 8) + 15) & 1) * 255 : of == 12 ? 0 : 255;
        to |= byte << 8 * n;
    }
    return to;
}

// Without IEEE mode the other one than a NaN is taken; -0 is below +0
static inline float larger(float a, float b) { return a != a ? b : b != b ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b; }
static inline float smaller(float a, float b) { return a != a ? b : b != b ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b; }
static inline float median(float a, float b, float c) {
    return a != a || b != b || c != c ? smaller(smaller(a, b), c) : larger(smaller(a, b), smaller(larger(a, b), c));
}
static inline float fraction(float f) { return f - floorf(f) < 1 ? f - floorf(f) : f != f ? f : 0x1.fffffep-1f; }  // below 1
static inline float clamped(float f) { return f > 0 ? smaller(f, 1) : 0; }  // NaN becomes 0: DX10_CLAMP, which the driver sets

// A function's result. The guide allows 1 ulp: inexact, it is sometimes the other float beside the true value
static inline float inexact(double value, u32 argument) {
    const float nearest = (float)value;
    const u32 word = word_of(nearest), exponent = word & 0x7f800000, hash = (u32)((argument + 1) * 0x9e3779b97f4a7c15ull >> 33);
    if (!settings.inexact || value == (double)nearest || exponent <= 0x00800000 || exponent >= 0x7f000000 || hash & 1) return nearest;
    return float_of(word + (fabs(value) > fabs((double)nearest) ? 1 : -1));
}

// "V_CVT_U32_F32", "V_CVT_I32_F32": toward 0, the bounds outside of them, 0 for NaN
static inline u32 to_unsigned(float f) { return !(f > 0) ? 0 : f >= 0x1p32f ? ~0u : (u32)f; }
static inline u32 to_signed(float f) { return f != f ? 0 : f >= 0x1p31f ? 0x7fffffff : f <= -0x1p31f ? 0x80000000 : (u32)(i32)f; }
static inline float from_half(u32 half) { return _cvtsh_ss((u16)half); }
static inline u32 to_half(float f) { return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
static inline u32 to_half_toward_zero(float f) { return _cvtss_sh(f, _MM_FROUND_TO_ZERO); }
static inline u32 mask_of(const Operand *o) { return o->bits ? (1u << o->bits) - 1 : ~0u; }
static inline u32 placed(const Instruction *i, u32 old, u32 word) {  // a result in its part of a register
    const u32 mask = mask_of(&i->to);
    return (word & mask) << i->to.shift | (i->flags & KEEPS ? old & ~(mask << i->to.shift) : 0);
}

// "V_CMP_CLASS_F32": the bit of a number's class: signaling and quiet NaN, then from -infinity to +infinity
static u32 class_of(u32 word, int exponent_bits, int fraction_bits) {
    const u32 most_exponent = (1u << exponent_bits) - 1, exponent = word >> fraction_bits & most_exponent;
    const u32 part = word & ((1u << fraction_bits) - 1), negative = word >> (exponent_bits + fraction_bits) & 1;
    const u32 size = exponent == most_exponent ? 3 : exponent ? 2 : part ? 1 : 0;
    return size == 3 && part ? part >> (fraction_bits - 1) : negative ? 5 - size : 6 + size;
}
