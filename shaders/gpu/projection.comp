// The input's part of every gate for the steps of a chunk, before the time loop: gates = X W^T + biases, packed as
// projected_input.glsl says.
// Workgroups: x units, y tiles of ROWS samples, z directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/input.glsl"
#include "../common/input_vecs.glsl"
#include "../common/samples.glsl"
#include "multiply_input.glsl"
layout(binding = 11) buffer Gates { uvec4 gates[]; };

void main()
{
    uint direction = gl_WorkGroupID.z, unit = gl_GlobalInvocationID.x;
    uint step, row, place[ROWS];  // in gates, for unit 0
    find_sample(gl_WorkGroupID.y * ROWS, step, row);
    if (!is_sample(step, row)) return;

    bool any_valid = false;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        any_valid = find_x(direction, step, row, x_start[r]) || any_valid;
        place[r] = is_sample(step, row) ? ((step * DIRECTIONS + direction) * dispatch.batch + row) * UNITS : NOWHERE;
        next_sample(step, row);
    }
    if (!any_valid) return;

    vec4 sums[ROWS];
    multiply_input(sums, direction, 0, GATES, unit);
    [[unroll]] for (uint r = 0; r < ROWS; ++r)
        if (place[r] != NOWHERE) gates[place[r] + unit] = floatBitsToUint(sums[r]);
}
