// An RNN on a GPU: the schedule *stepped*.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/recurrence.glsl"
#include "../common/activations.glsl"
#include "../cells/rnn.glsl"
#include "state_layout.glsl"
#include "products.glsl"
#include "sums.glsl"
#include "projected_input.glsl"
#include "exchange.glsl"
#include "fetch.glsl"
#include "part_step.glsl"
#include "stepped.glsl"
