// Packed weights: what one unit loads at once for one gate. That is a real4 along the columns, or, of 16-bit elements, two
// vec4s in one uvec4, because drivers charge for loads more than for bytes. Biases and peepholes behind them are real4s, a
// gate a component.
#ifdef PAIRS
const uint VECS_PER_LOAD = 1;
#define loaded_weights real4
#define LOAD_WEIGHTS(buffer, i) GET_REAL4(buffer, i)
#define STORE_WEIGHTS(buffer, i, v) SET_REAL4(buffer, i, v[0])
real4 unpack_weights(real4 weights, uint vec) { return weights; }
#else
const uint VECS_PER_LOAD = ELEMENT == 0 ? 1 : 2;
#define loaded_weights uvec4
#define LOAD_WEIGHTS(buffer, i) buffer[i]
#define STORE_WEIGHTS(buffer, i, v) buffer[i] = pack_weights(v)
vec4 unpack_weights(uvec4 weights, uint vec)
{
    if (ELEMENT == 0) return uintBitsToFloat(weights);
    uvec2 words = mix(weights.zw, weights.xy, bvec2(vec == 0));  // no branch: vec may vary
    return vec4(both_halves(words.x), both_halves(words.y));
}

uvec4 pack_weights(vec4 v[VECS_PER_LOAD])
{
    if (ELEMENT == 0) return floatBitsToUint(v[0]);
    uvec4 words;
    [[unroll]] for (uint w = 0; w < 4; ++w) {
        uint vec = w / 2 * (VECS_PER_LOAD - 1);
        words[w] = half_of(v[vec][w % 2 * 2]) | half_of(v[vec][w % 2 * 2 + 1]) << 16;
    }
    return words;
}
#endif
