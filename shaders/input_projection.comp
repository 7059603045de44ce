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

// Tiles take pairs of a step of the chunk and a row: step after step, or, COUNTED, only those that there are, row after row.
layout(constant_id = 52) const uint COUNTED = 0;
const uint NOWHERE = 0xFFFFFFFFu;  // the start in `gates` of a pair that there is not

bool is_pair(uint step, uint row) { return row < BATCH && step < chunk.last_step - chunk.first_step; }

uint steps_of(uint row) { return clamp(row_length(row), chunk.first_step, chunk.last_step) - chunk.first_step; }

// The first pair from a step of a row on, which may have too few
void skip_rows(inout uint step, inout uint row)
{
    for (uint steps; row < BATCH && step >= (steps = steps_of(row)); ++row) step -= steps;
}

void find_pair(uint pair, out uint step, out uint row)
{
    if (COUNTED != 0) {
        step = pair;
        row = 0;
        skip_rows(step, row);
    } else {
        step = pair / BATCH;
        row = pair % BATCH;
    }
}

void next_pair(inout uint step, inout uint row)
{
    if (COUNTED != 0) {
        ++step;
        skip_rows(step, row);
    } else if (++row == BATCH) {
        row = 0;
        ++step;
    }
}

// Whether a row has a step of the chunk, and where its X starts
bool find_x(uint direction, uint step, uint row, out uint start)
{
    uint length = row_length(row);
    start = x_start_of(direction, chunk.first_step + step, length, row);
    return chunk.first_step + step < length;
}

uint start_in_gates(uint direction, uint step, uint row)
{
    return is_pair(step, row) ? gates_start(step, direction, row) : NOWHERE;
}

#ifdef ROW_LANES
layout(constant_id = 51) const uint OF_TILES = 0;  // for a loop whose invocations hold rows too
uint x_start[TILE], vector_start[TILE];  // of a vector in X, and, unless OF_TILES, in `gates`
#define BLOCK_VECTOR(v, vec) load_x(x_start[v], vec)
#define BLOCK_WEIGHTS input_weights
#include "lib/row_lanes.glsl"
const uint BLOCKS = INPUT_LOADS / BLOCK_LOADS;

// Row r of tile i
void find_row(uint i, uint r, out uint step, out uint row)
{
    if (OF_TILES != 0) {
        step = i / TILES;
        row = i % TILES * ROWS + r;
    } else find_pair(i * ROWS + r, step, row);
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
            if (vector_start[v] != NOWHERE) add_to_gates(block, gates_place(vector_start[v], unit), bias, of_row);
        }
}

void multiply_tile(uint direction, uint i)
{
    uint step, row, start;
    find_row(i, 0, step, row);
    if (!is_pair(step, row)) return;
    bool any_valid = HAS_LENGTHS == 0 || COUNTED != 0;
    if (!any_valid)
        ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
            find_row(i, r, step, row);
            any_valid = find_x(direction, step, row, start) || any_valid;
        }
    if (!any_valid) return;

    [[unroll]] for (uint v = 0; v < VECTORS; ++v) {
        find_row(i, v * LANES + LANE, step, row);
        find_x(direction, step, row, x_start[v]);
        vector_start[v] = start_in_gates(direction, step, row);
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
    uint step, row, row_start[ROWS];
    find_pair(tile * ROWS, step, row);
    if (!is_pair(step, row)) return;

    bool any_valid = false;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        any_valid = find_x(direction, step, row, x_start[r]) || any_valid;
        row_start[r] = start_in_gates(direction, step, row);
        next_pair(step, row);
    }
    if (!any_valid) return;

    uint unit = gl_WorkGroupID.x * WORKGROUP * UNITS_AT_ONCE + gl_LocalInvocationID.x;
    real4 acc[TILE];
    set_input_bias(acc, direction, unit);
    dot_input(acc, direction, 0, GATES, unit);
    ROW_LOOP for (uint i = 0; i < TILE; ++i) {
        uint start = row_start[i % ROWS];
        if (start != NOWHERE) SET_REAL4(gates, gates_place(start, unit + i / ROWS * WORKGROUP), PICK(acc, i));
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
