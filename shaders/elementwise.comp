// Applies one activation to every element of a tensor of float32, float16 or bfloat16.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common/numbers.glsl"
#include "common/elements.glsl"
#include "common/store_STORAGE.glsl"
const uint DIRECTIONS = 1, direction = 0;  // activations.glsl then takes the activation f of direction 0
#include "common/activations.glsl"
#include "common/elementwise.glsl"
