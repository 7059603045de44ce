// The input's part of every gate for the time steps of a chunk, before the time loop: gates = X W^T + biases.
// gates is packed as in lib/gates.glsl. A step of a row that runs backward takes the input of the position it works on.
// Workgroups: x over units, PART_UNITS each, y over tiles of ROWS (step, row) pairs, or, OF_TILES, of a step's rows, and some
// more, z over directions.
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

uint pairs() { return (chunk.last_step - chunk.first_step) * BATCH; }

#ifdef ROW_LANES
layout(constant_id = 51) const uint OF_TILES = 0;  // for a loop whose invocations hold rows too
uint x_start[TILE], vector_start[TILE];  // of a vector in X, and, unless OF_TILES, in `gates`
#define BLOCK_VECTOR(v, vec) load_x(x_start[v], vec)
#define BLOCK_WEIGHTS input_weights
#include "lib/row_lanes.glsl"
const uint BLOCKS = INPUT_LOADS / BLOCK_LOADS;

// Row r of tile i: whether it is one, with its step of the chunk and its number
bool find_row(uint i, uint r, out uint step, out uint row)
{
    if (OF_TILES != 0) {
        step = i / TILES;
        row = i % TILES * ROWS + r;
        return step < chunk.last_step - chunk.first_step;
    }
    uint pair = min(i * ROWS + r, pairs() - 1);
    step = pair / BATCH;
    row = pair % BATCH;
    return i * ROWS + r < pairs();
}

// To what the blocks before came to, or, in the first one, the biases
void add_to_gates(uint block, uint place, vec4 bias, vec4 products)
{
    if (BLOCKS > 1) bias = mix(uintBitsToFloat(gates[place]), bias, bvec4(block == 0));
    gates[place] = floatBitsToUint(bias + products);
}

void multiply_unit(uint block, uint direction, uint i, uint unit)
{
    vec4 bias = input_bias(direction, unit);
    vec4 sums[GATES];
    [[unroll]] for (uint gate = 0; gate < GATES; ++gate) sums[gate] = vec4(0.0);
    ROW_LOOP for (uint gate = 0; gate < GATES; ++gate) {
        vec4 products = multiply_block(block, INPUT_LOADS, direction, gate, unit);
        if (OF_TILES != 0) {
            uint place = gates_place_of_tile(i / TILES, direction, i % TILES, unit, gate);
            add_to_gates(block, place, vec4(of_vector(bias, gate)), products);
        } else
            [[unroll]] for (uint g = 0; g < GATES; ++g) sums[g] = mix(sums[g], products, bvec4(g == gate));
    }
    if (OF_TILES == 0)
        ROW_LOOP for (uint v = 0; v < VECTORS; ++v) {
            vec4 of_row = vec4(0.0);
            [[unroll]] for (uint gate = 0; gate < GATES; ++gate) of_row[gate] = of_vector(sums[gate], v);
            if (i * ROWS + v * LANES + LANE < pairs()) add_to_gates(block, gates_place(vector_start[v], unit), bias, of_row);
        }
}

void multiply_tile(uint direction, uint i)
{
    bool any_valid = false;
    uint step, row, start;
    if (!find_row(i, 0, step, row)) return;
    ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
        find_row(i, r, step, row);
        any_valid = find_x(direction, chunk.first_step + step, row, start) || any_valid;
    }
    if (!any_valid) return;

    [[unroll]] for (uint v = 0; v < VECTORS; ++v) {
        find_row(i, v * LANES + LANE, step, row);
        find_x(direction, chunk.first_step + step, row, x_start[v]);
        vector_start[v] = gates_start(step, direction, row);
    }
    uint first_unit = gl_WorkGroupID.x * PART_UNITS;
    ROW_LOOP for (uint block = 0; block < BLOCKS; ++block) {
        load_block(block);
        for (uint unit = first_unit; unit < min(first_unit + PART_UNITS, HIDDEN); ++unit)
            multiply_unit(block, direction, i, unit);
    }
}
#else
uint x_start[ROWS];
#include "lib/dot_input.glsl"

void multiply_tile(uint direction, uint tile)
{
    uint first_pair = tile * ROWS;
    if (first_pair >= pairs()) return;

    bool any_valid = false;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        uint pair = min(first_pair + r, pairs() - 1);
        any_valid = find_x(direction, chunk.first_step + pair / BATCH, pair % BATCH, x_start[r]) || any_valid;
    }
    if (!any_valid) return;

    uint unit = gl_WorkGroupID.x * WORKGROUP * UNITS_AT_ONCE + gl_LocalInvocationID.x;
    real4 acc[TILE];
    set_input_bias(acc, direction, unit);
    dot_input(acc, direction, 0, GATES, unit);
    ROW_LOOP for (uint i = 0; i < TILE; ++i) {
        uint pair = first_pair + i % ROWS;
        uint place = gates_place(gates_start(pair / BATCH, direction, pair % BATCH), unit + i / ROWS * WORKGROUP);
        if (pair < pairs()) SET_REAL4(gates, place, PICK(acc, i));
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
