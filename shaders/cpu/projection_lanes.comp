// Computes the input's part of every gate for the steps of a chunk, before the time loop: gates = X W^T + biases, in the layout
// of packed.glsl. Invocations hold units. Workgroups: x units, PART_UNITS each, y tiles of ROWS samples, z directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "lanes.glsl"
#include "input.glsl"
#include "../common/samples.glsl"
#include "packed.glsl"
#include "tile_of_units.glsl"

// If a workgroup has several turns of units, X of its tile stays in private memory, because loads from a buffer are slow: each
// invocation keeps a vec4 of each block of a row.
const bool KEEPS_X = PART_UNITS > WORKGROUP * UNITS_AT_ONCE;
const uint INPUT_BLOCKS = INPUT_LOADS * VECS_PER_LOAD / LANES;
vec4 x_of_tile[KEEPS_X ? ROWS * INPUT_BLOCKS : 1];
#define X_VECTOR(row, vec) (KEEPS_X ? x_of_tile[(row) * INPUT_BLOCKS + (vec) / LANES] : load_x(x_start[row], vec))
#include "multiply_input.glsl"

// Spreads work evenly over cores. llvmpipe gives each core consecutive workgroups, and with lengths the last tiles may be
// empty. The host then rounds the number of workgroups up to a power of two, and each takes the tile with its own number's bits
// reversed.
uint spread(uint group, uint groups)
{
    bool is_power_of_two = (groups & (groups - 1)) == 0 && groups > 1;
    return is_power_of_two ? bitfieldReverse(group) >> (32 - findMSB(groups)) : group;
}

layout(binding = 11) buffer Gates { uvec4 gates[]; };

void multiply_tile(uint direction, uint tile)
{
    uint step, row, row_start[ROWS];
    find_sample(tile * ROWS, step, row);
    if (!is_sample(step, row)) return;

    bool any_valid = false;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        any_valid = find_x(direction, step, row, x_start[r]) || any_valid;
        row_start[r] = is_sample(step, row) ? gates_start(step, direction, row) : NOWHERE;
        next_sample(step, row);
    }
    if (!any_valid) return;

    if (KEEPS_X) ROW_LOOP for (uint r = 0; r < ROWS; ++r)
        ROW_LOOP for (uint block = 0; block < INPUT_BLOCKS; ++block)
            x_of_tile[r * INPUT_BLOCKS + block] = load_x(x_start[r], block * LANES + LANE);
    uint first_unit = gl_WorkGroupID.x * PART_UNITS, end_unit = min(first_unit + PART_UNITS, UNITS);
    for (uint unit = first_unit + gl_LocalInvocationID.x; unit < end_unit; unit += WORKGROUP * UNITS_AT_ONCE) {
        vec4 sums[TILE];
        set_input_bias(sums, direction, unit);
        multiply_input(sums, direction, 0, GATES, unit);
        ROW_LOOP for (uint i = 0; i < TILE; ++i) {
            uint start = row_start[i % ROWS];
            if (start != NOWHERE) gates[gates_place(start, unit + i / ROWS * WORKGROUP)] = floatBitsToUint(pick(sums, i));
        }
    }
}

void main()
{
    multiply_tile(gl_WorkGroupID.z, spread(gl_WorkGroupID.y, gl_NumWorkGroups.y));
}
