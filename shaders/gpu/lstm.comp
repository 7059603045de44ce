// An LSTM on a GPU: the schedule *sequence*.
#version 450
#extension GL_GOOGLE_include_directive : require
#define ROW_LOOP [[dont_unroll]]
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/time_loop.glsl"
#include "../common/activations.glsl"
#include "../common/cell_state.glsl"
#include "../cells/lstm.glsl"
#include "products.glsl"
#include "sums.glsl"
#include "projected_input.glsl"
#include "state.glsl"
#include "rows.glsl"
#include "sequence.glsl"
