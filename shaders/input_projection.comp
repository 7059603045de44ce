// The input's part of every gate for the time steps of a chunk, before the time loop: gates = X W^T + biases.
// gates is packed as in lib/gates.glsl. A step of a row that runs backward takes the input of the position it works on.
// Workgroups: x over units, PART_UNITS each, y over tiles of ROWS (step, row) pairs, or, with ROW_LANES, of a step's rows, and
// some more, z over directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "lib/problem.glsl"
#include "lib/masked.glsl"
#define X_BINDING 0
#include "lib/input.glsl"
#define INPUT_WEIGHTS_BINDING 1
#include "lib/input_weights.glsl"
#define LENGTHS_BINDING 2
#include "lib/lengths.glsl"
#include "lib/gates.glsl"
layout(binding = 3) buffer Gates { uvec4 gates[]; };

// Whether a row has a step, and where its X starts
bool find_x(uint direction, uint step, uint row, out uint start)
{
    uint length = row_length(row);
    start = x_start_of(direction, step, length, row);
    return step < length;
}

#ifdef ROW_LANES
uint x_start[TILE];
#define BLOCK_VECTOR(v, vec) load_x(x_start[v], vec)
#define BLOCK_WEIGHTS input_weights
#include "lib/row_lanes.glsl"
const uint BLOCKS = INPUT_LOADS / BLOCK_LOADS;

void multiply_unit(uint block, uint direction, uint step, uint tile, uint unit)
{
    vec4 bias = input_bias(direction, unit);
    ROW_LOOP for (uint gate = 0; gate < GATES; ++gate) {
        vec4 before = vec4(of_vector(bias, gate));
        uint place = gates_place(step, direction, tile, unit, gate);
        if (BLOCKS > 1) before = mix(uintBitsToFloat(gates[place]), before, bvec4(block == 0));
        gates[place] = floatBitsToUint(before + multiply_block(block, INPUT_LOADS, direction, gate, unit));
    }
}

void multiply_tile(uint direction, uint i)
{
    uint tile = i % TILES, place = i / TILES, step = chunk.first_step + place;
    if (step >= chunk.last_step) return;

    bool any_valid = false;
    uint start;
    ROW_LOOP for (uint r = 0; r < ROWS; ++r) any_valid = find_x(direction, step, tile * ROWS + r, start) || any_valid;
    if (!any_valid) return;

    [[unroll]] for (uint v = 0; v < VECTORS; ++v) find_x(direction, step, tile * ROWS + v * LANES + LANE, x_start[v]);
    uint first_unit = gl_WorkGroupID.x * PART_UNITS;
    ROW_LOOP for (uint block = 0; block < BLOCKS; ++block) {
        load_block(block);
        for (uint unit = first_unit; unit < min(first_unit + PART_UNITS, HIDDEN); ++unit)
            multiply_unit(block, direction, place, tile, unit);
    }
}
#else
uint x_start[ROWS];
#include "lib/dot_input.glsl"

void multiply_tile(uint direction, uint tile)
{
    uint pairs = (chunk.last_step - chunk.first_step) * BATCH;
    uint first_pair = tile * ROWS;
    if (first_pair >= pairs) return;

    bool any_valid = false;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        uint pair = min(first_pair + r, pairs - 1);
        any_valid = find_x(direction, chunk.first_step + pair / BATCH, pair % BATCH, x_start[r]) || any_valid;
    }
    if (!any_valid) return;

    uint unit = gl_WorkGroupID.x * WORKGROUP * UNITS_AT_ONCE + gl_LocalInvocationID.x;
    real4 acc[TILE];
    set_input_bias(acc, direction, unit);
    dot_input(acc, direction, 0, GATES, unit);
    ROW_LOOP for (uint i = 0; i < TILE; ++i) {
        uint pair = first_pair + i % ROWS;
        uint place = gates_place(pair / BATCH, direction, pair % BATCH, unit + i / ROWS * WORKGROUP);
        if (pair < pairs) SET_REAL4(gates, place, PICK(acc, i));
    }
}
#endif

// llvmpipe gives each core consecutive workgroups. The last ones have nothing to do, where the host has rounded their number up
// to a power of two: with the bits of its number reversed, a core gets as much as any other.
uint spread(uint group, uint groups)
{
    bool is_power_of_two = (groups & (groups - 1)) == 0 && groups > 1;
    return is_power_of_two ? bitfieldReverse(group) >> (32 - findMSB(groups)) : group;
}

void main()
{
    multiply_tile(gl_WorkGroupID.z, spread(gl_WorkGroupID.y, gl_NumWorkGroups.y));
}
