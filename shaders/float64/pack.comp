// Packs one weight tensor and its share of the biases for the kernels of float64.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "pairs.glsl"
#include "elements.glsl"
#include "../common/pack.glsl"

void store_extra(uint i, real numbers[4])
{
    real4 v;
    [[unroll]] for (uint c = 0; c < 4; ++c) set_component(v, c, numbers[c]);
    SET_REAL4(packed, i, v);
}

void store_load(uint i, real weights[LOAD_COLUMNS]) { store_extra(i, weights); }
