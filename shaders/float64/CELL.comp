// A time loop in float64, for tiles of one row, in sequence or stepped.
#version 450
#extension GL_GOOGLE_include_directive : require
#define ROW_LOOP [[dont_unroll]]
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "pairs.glsl"
#include "elements.glsl"
#include "../common/time_loop.glsl"
#include "activations.glsl"
#include "CELL.glsl"
#include "state.glsl"
#include "multiply_input.glsl"
#include "step.glsl"
#include "../common/parts.glsl"
