// Computes the input's part of every gate for the steps of a chunk, before the time loop: gates = X W^T + biases, as
// [step][direction][row][unit], a real4 with a component for each gate.
// Workgroups: x units, y samples, z directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "pairs.glsl"
#include "elements.glsl"
#include "multiply_input.glsl"
#include "../common/samples.glsl"
layout(binding = 11) buffer Gates { uvec4 gates[]; };

void main()
{
    uint direction = gl_WorkGroupID.z, unit = gl_GlobalInvocationID.x;
    uint step, row, x_start;
    find_sample(gl_WorkGroupID.y, step, row);
    if (!is_sample(step, row) || !find_x(direction, step, row, x_start)) return;
    uint place = ((step * DIRECTIONS + direction) * dispatch.batch + row) * UNITS + unit;
    SET_REAL4(gates, place, multiply_input(x_start, direction, 0, GATES, unit));
}
