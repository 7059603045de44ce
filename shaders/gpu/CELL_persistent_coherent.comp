// The schedule *persistent* for GPUs whose compiler makes volatile loads bypass the cache to which words are stored.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/store_STORAGE.glsl"
#include "../common/recurrence.glsl"
#include "../common/activations.glsl"
#include "../cells/CELL.glsl"
#include "state_layout.glsl"
#include "products.glsl"
#include "exchange.glsl"
#include "part_step.glsl"
#define POLLED coherent
#include "persistent.glsl"
