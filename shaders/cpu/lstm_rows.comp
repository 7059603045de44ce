// An LSTM on a CPU driver, for large batches: invocations hold rows, and weights go round a subgroup.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "lanes.glsl"
#include "../common/time_loop.glsl"
#include "../common/activations.glsl"
#include "../common/cell_state.glsl"
#include "../cells/lstm.glsl"
#include "../common/rows.glsl"
#include "state_of_rows.glsl"
#include "barrier.glsl"
#include "hidden_weights.glsl"
#include "step_of_rows.glsl"
#include "../common/parts.glsl"
