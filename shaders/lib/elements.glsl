// Elements of tensors. Their buffers are declared as uints, and read and written by:
//   LOAD_ELEMENT(buffer, i)          element i, as a real
//   STORE_ELEMENT(buffer, i, value)  rounded once, to nearest
// Two 16-bit elements share a word, and strides may put any two of a tensor into one: each is stored by atomics that touch
// its own bits only, so that no two invocations race, and gaps keep what they hold.
#ifdef PAIRS  // FLOAT64
#include "float64.glsl"
#define LOAD_ELEMENT(buffer, i) real_of_double(buffer[2 * (i)], buffer[2 * (i) + 1])
#define STORE_ELEMENT(buffer, i, value) \
    { uvec2 words = double_of_real(value); buffer[2 * (i)] = words.x; buffer[2 * (i) + 1] = words.y; }
#else
layout(constant_id = 45) const uint ELEMENT = 0;  // the `shader_id`s of types.py: 0 float32, 1 float16, 2 bfloat16
const uint WORD_SHIFT = ELEMENT == 0 ? 0 : 1;

vec2 both_halves(uint word)
{
    return ELEMENT == 1 ? unpackHalf2x16(word) : vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xFFFF0000u));
}

float element_of(uint word, uint i)
{
    return ELEMENT == 0 ? uintBitsToFloat(word) : both_halves(word)[i & 1];
}

// The 16 bits of a float, rounded to nearest even. By integers, because packHalf2x16 may round otherwise, and makes NaN of
// infinity on one driver.
uint half_of(float x)
{
    uint bits = floatBitsToUint(x);
    if (ELEMENT == 2) return isnan(x) ? 0x7FC0u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint magnitude = bits & 0x7FFFFFFFu;
    uint small = uint(roundEven(abs(x) * 16777216.0));  // below 2^-14, in units of 2^-24
    uint normal = magnitude - 0x38000000u;  // the exponent's other bias
    normal = min((normal + 0xFFFu + ((normal >> 13) & 1u)) >> 13, 0x7C00u);
    uint rounded = isnan(x) ? 0x7E00u : (magnitude < 0x38800000u ? small : normal);
    return (bits >> 16 & 0x8000u) | rounded;
}

#define LOAD_ELEMENT(buffer, i) element_of(buffer[(i) >> WORD_SHIFT], i)
#define STORE_ELEMENT(buffer, i, value) \
    if (ELEMENT == 0) buffer[i] = floatBitsToUint(value); \
    else { \
        uint place = i; \
        uint shift = (place & 1) * 16; \
        atomicAnd(buffer[place >> 1], ~(0xFFFFu << shift)); \
        atomicOr(buffer[place >> 1], half_of(value) << shift); \
    }
#endif
