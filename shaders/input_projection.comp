// The input's part of every gate for the time steps of a chunk, before the time loop: gates = X W^T + biases.
// gates is packed [step][direction][row][unit], a real4 with one component a gate. A step of a row that runs backward takes
// the input of the position it works on.
// Workgroups: x over units, y over tiles of ROWS (step, row) pairs, and some more, z over directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "lib/problem.glsl"
#define X_BINDING 0
#include "lib/input.glsl"
#define INPUT_WEIGHTS_BINDING 1
#define LENGTHS_BINDING 2
#include "lib/lengths.glsl"
layout(binding = 3) writeonly buffer Gates { uvec4 gates[]; };

uint x_start[ROWS];
#include "lib/dot_input.glsl"

void main()
{
    uint unit = gl_WorkGroupID.x * WORKGROUP * UNITS_AT_ONCE + gl_LocalInvocationID.x;
    uint direction = gl_WorkGroupID.z;
    uint pairs = (chunk.last_step - chunk.first_step) * BATCH;
    uint first_pair = gl_WorkGroupID.y * ROWS;
    if (first_pair >= pairs) return;

    bool any_valid = false;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        uint pair = min(first_pair + r, pairs - 1);
        uint step = chunk.first_step + pair / BATCH;
        uint row = pair % BATCH;
        uint length = row_length(row);
        bool valid = step < length;
        any_valid = any_valid || valid;
        x_start[r] = (valid ? position_at(direction, step, length) : 0) * INPUT_STRIDE_T + row * INPUT_STRIDE_B;
    }
    if (!any_valid) return;

    real4 acc[TILE];
    set_input_bias(acc, direction, unit);
    dot_input(acc, direction * INPUT_LOADS * GATES * UNITS, 0, GATES, unit);
    [[unroll]] for (uint i = 0; i < TILE; ++i) {
        uint pair = first_pair + i % ROWS;
        uint place = ((pair / BATCH * DIRECTIONS + direction) * BATCH + pair % BATCH) * UNITS + unit + i / ROWS * WORKGROUP;
        if (pair < pairs) SET_REAL4(gates, place, acc[i]);
    }
}
