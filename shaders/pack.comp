// Packs one weight tensor and its share of the biases for the kernels of float32, float16 and bfloat16.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common/numbers.glsl"
#include "common/elements.glsl"
#include "common/pack.glsl"

float add(float a, float b) { return a + b; }

uint word_of(float weights[LOAD_COLUMNS], uint word)
{
    if (ELEMENT == FLOAT32) return floatBitsToUint(weights[word]);
    uint c = word * (VECS_PER_LOAD == 1 ? 0 : 2);
    return sixteen_bits(weights[c]) | sixteen_bits(weights[c + 1]) << 16;
}

void store_load(uint i, float weights[LOAD_COLUMNS])
{
    packed[i] = uvec4(word_of(weights, 0), word_of(weights, 1), word_of(weights, 2), word_of(weights, 3));
}

void store_extra(uint i, float numbers[4])
{
    packed[i] = floatBitsToUint(vec4(numbers[0], numbers[1], numbers[2], numbers[3]));
}
