// Applies one activation to every element of a tensor of float64.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "../common/numbers.glsl"
#include "pairs.glsl"
#include "elements.glsl"
const uint DIRECTIONS = 1, direction = 0;  // activations.glsl then takes the activation f of direction 0
#include "activations.glsl"
#include "../common/elementwise.glsl"
