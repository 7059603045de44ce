// One activation on every element of a tensor: float32, float16 and bfloat16.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common/numbers.glsl"
#include "common/elements.glsl"
#include "common/store_STORAGE.glsl"
const uint DIRECTIONS = 1, direction = 0;  // the activation is the f of a single direction
#include "common/activations.glsl"
#include "common/elementwise.glsl"
