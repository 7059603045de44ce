// Elements of tensors, and packed weights: float32, float16 or bfloat16, computed with as floats. Their buffers are uints:
//   LOAD_ELEMENT(buffer, i), and STORE_ELEMENT(buffer, i, value) of store_words.glsl or store_halves.glsl: rounded once, to nearest
// The types of shared code: floats here, pairs of floats in float64/
#define real float
#define real4 vec4
const uint REAL4_WORDS = 4;
#define ZERO 0.0
layout(constant_id = 45) const uint ELEMENT = 0;  // FLOAT32, FLOAT16 or BFLOAT16 (numbers.glsl)

// The two 16-bit elements of a word
#define TWO_FLOATS(type, word) \
    (type == FLOAT16 ? unpackHalf2x16(word) : vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xFFFF0000u)))
vec2 two_floats(uint word) { return TWO_FLOATS(ELEMENT, word); }

// By integers: drivers may take isnan(x) for false
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }

// A float as a float16's or bfloat16's bits, rounded to nearest even. By integers: packHalf2x16 may round otherwise, and one
// driver makes NaN of infinity.
uint sixteen_bits(float x)
{
    uint bits = floatBitsToUint(x);
    if (ELEMENT == BFLOAT16) return is_nan(x) ? 0x7FC0u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint magnitude = bits & 0x7FFFFFFFu;
    uint subnormal = uint(roundEven(abs(x) * 16777216.0));  // below 2^-14, in units of 2^-24
    uint normal = magnitude - 0x38000000u;  // the exponent's other bias
    normal = min((normal + 0xFFFu + ((normal >> 13) & 1u)) >> 13, 0x7C00u);
    uint rounded = is_nan(x) ? 0x7E00u : (magnitude < 0x38800000u ? subnormal : normal);
    return (bits >> 16 & 0x8000u) | rounded;
}

float element_of(uint word, uint i) { return ELEMENT == FLOAT32 ? uintBitsToFloat(word) : two_floats(word)[i & 1]; }
#define LOAD_ELEMENT(buffer, i) element_of(buffer[(i) >> uint(ELEMENT != FLOAT32)], i)

// A load of packed weights is 16 bytes: one vec4 along the columns of a unit's gate, or two of 16-bit elements.
const uint VECS_PER_LOAD = ELEMENT == FLOAT32 ? 1 : 2;
vec4 unpack_weights(uvec4 loaded, uint vec)
{
    if (ELEMENT == FLOAT32) return uintBitsToFloat(loaded);
    uvec2 words = mix(loaded.zw, loaded.xy, bvec2(vec == 0));  // no branch: vec may vary
    return vec4(two_floats(words.x), two_floats(words.y));
}
