// The input's part of every gate for the steps of a chunk, before the time loop: gates = X W^T + biases.
// Invocations hold samples. Workgroups: x units, PART_UNITS each, y tiles of ROWS samples, or, OF_TILES, of a step's rows, z
// directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "lanes.glsl"
#include "input.glsl"
#include "../common/samples.glsl"
#include "packed.glsl"
#include "spread.glsl"
layout(binding = 11) buffer Gates { uvec4 gates[]; };
layout(constant_id = 51) const uint OF_TILES = 0;  // for a loop whose invocations hold rows too
uint x_start[ROWS / LANES], vector_start[ROWS / LANES];  // of a vector in X, and, unless OF_TILES, in `gates`
#define BLOCK_VECTOR(v, vec) load_x(x_start[v], vec)
#define BLOCK_WEIGHTS input_weights
#include "rows_in_lanes.glsl"
const uint BLOCKS = INPUT_LOADS / BLOCK_LOADS;

uint tile_step, tile_of_step;  // OF_TILES: which of the loop's tiles this is, divided out once

// Row r of tile i
void find_row(uint i, uint r, out uint step, out uint row)
{
    if (OF_TILES != 0) {
        step = tile_step;
        row = tile_of_step * ROWS + r;
    } else find_sample(i * ROWS + r, step, row);
}

// To what the blocks before came to, or, in the first one, the biases
void add_to_gates(uint block, uint place, vec4 bias, vec4 products)
{
    if (BLOCKS > 1) bias = mix(uintBitsToFloat(gates[place]), bias, bvec4(block == 0));
    gates[place] = floatBitsToUint(bias + products);
}

void multiply_unit(uint block, uint direction, uint unit)
{
    vec4 bias = input_bias(direction, unit);
    vec4 sums[GATES];
    [[unroll]] for (uint gate = 0; gate < GATES; ++gate) sums[gate] = vec4(0.0);
    ROW_LOOP for (uint gate = 0; gate < GATES; ++gate) {
        vec4 products = multiply_block(block, INPUT_LOADS, direction, gate, unit);
        if (OF_TILES != 0) {
            uint place = gates_place_of_tile(tile_step, direction, tile_of_step, unit, gate);
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
    if (OF_TILES != 0) {
        tile_step = i / dispatch.tiles;
        tile_of_step = i % dispatch.tiles;
    }
    find_row(i, 0, step, row);
    if (!is_sample(step, row)) return;
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
        vector_start[v] = is_sample(step, row) ? gates_start(step, direction, row) : NOWHERE;
    }
    uint first_unit = gl_WorkGroupID.x * PART_UNITS;
    ROW_LOOP for (uint block = 0; block < BLOCKS; ++block) {
        load_block(block);
        for (uint unit = first_unit; unit < min(first_unit + PART_UNITS, HIDDEN); ++unit)
            multiply_unit(block, direction, unit);
    }
}

void main()
{
    multiply_tile(gl_WorkGroupID.z, spread(gl_WorkGroupID.y, gl_NumWorkGroups.y));
}
