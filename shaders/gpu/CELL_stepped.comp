// The schedule *stepped*: a dispatch runs one phase of one step. A barrier before each makes the stores of the others visible
// to it.
// Workgroups: x groups of rows, y directions, z parts.
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
#include "fetch.glsl"
#include "part_step.glsl"

void main()
{
    begin_part();
    if (PHASES == 1 || dispatch.phase == 0) {
        keep_weights(first_gate(0), end_gate(0));
        run_phase(0, dispatch.first_step);
    } else {
        keep_weights(first_gate(1), end_gate(1));
        run_phase(1, dispatch.first_step);
    }
}
