// An LSTM on a GPU: the schedules *stepped* and *persistent*, the input multiplied in the loop.
#version 450
#extension GL_GOOGLE_include_directive : require
#define ROW_LOOP [[unroll]]
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/time_loop.glsl"
#include "../common/activations.glsl"
#include "../common/cell_state.glsl"
#include "../cells/lstm.glsl"
#include "../common/rows.glsl"
#include "state.glsl"
#include "fused_input.glsl"
#include "step.glsl"
#include "../common/parts.glsl"
