// Loads elements of tensors, and packed weights, of float32, float16 or bfloat16 as floats. Their buffers are uints.
//   LOAD_ELEMENT(buffer, i)          loads an element
//   STORE_ELEMENT(buffer, i, value)  rounds it once, to nearest, and stores it (store_words.glsl or store_halves.glsl)
// Shared code calls its number type `real`: a float here, a pair of floats in float64/.
#define real float
#define real4 vec4
const uint REAL4_WORDS = 4;
#define ZERO 0.0
layout(constant_id = 45) const uint ELEMENT = 0;  // FLOAT32, FLOAT16 or BFLOAT16 (numbers.glsl)

// Returns the two 16-bit elements of a word.
#define TWO_FLOATS(type, word) \
    (type == FLOAT16 ? unpackHalf2x16(word) : vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xFFFF0000u)))
vec2 two_floats(uint word) { return TWO_FLOATS(ELEMENT, word); }

// Compares integers, because drivers may compile isnan(x) to false.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }

// Rounds a float to the nearest float16 or bfloat16, ties to even, and returns its bits. It uses integers, because packHalf2x16
// may round otherwise, and one driver's makes NaN of infinity.
uint sixteen_bits(float x)
{
    uint bits = floatBitsToUint(x);
    if (ELEMENT == BFLOAT16) return is_nan(x) ? 0x7FC0u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint magnitude = bits & 0x7FFFFFFFu;
    uint subnormal = uint(roundEven(abs(x) * 16777216.0));  // the result below 2^-14, in units of 2^-24
    uint normal = magnitude - 0x38000000u;  // the exponent has another bias in float16
    normal = min((normal + 0xFFFu + ((normal >> 13) & 1u)) >> 13, 0x7C00u);
    uint rounded = is_nan(x) ? 0x7E00u : (magnitude < 0x38800000u ? subnormal : normal);
    return (bits >> 16 & 0x8000u) | rounded;
}

float element_of(uint word, uint i) { return ELEMENT == FLOAT32 ? uintBitsToFloat(word) : two_floats(word)[i & 1]; }
#define LOAD_ELEMENT(buffer, i) element_of(buffer[(i) >> uint(ELEMENT != FLOAT32)], i)

// A load of packed weights is 16 bytes: 4 columns of a unit's gate in float32, or 8 in a 16-bit type.
const uint VECS_PER_LOAD = ELEMENT == FLOAT32 ? 1 : 2;
vec4 unpack_weights(uvec4 loaded, uint vec)
{
    if (ELEMENT == FLOAT32) return uintBitsToFloat(loaded);
    uvec2 words = mix(loaded.zw, loaded.xy, bvec2(vec == 0));  // without a branch, because vec may differ between invocations
    return vec4(two_floats(words.x), two_floats(words.y));
}
