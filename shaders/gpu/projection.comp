// Computes the input's part of every gate for the steps of a chunk, before the time loop: gates = X W^T + biases, as
// [step][direction][row][unit], a vec4 with a component for each gate.
// Workgroups: x tiles of units, y tiles of samples, z directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/input.glsl"
#include "../common/input_vecs.glsl"
#include "../common/samples.glsl"
#include "product_tile.glsl"
layout(binding = 11) writeonly buffer Gates { uvec4 gates[]; };

shared uint places[ROWS];  // each sample's place in `gates`, for unit 0
shared uint has_samples;

// Finds where the tile's samples lie in X, and where their gates go: NOWHERE for a sample that does not exist.
void find_samples(uint direction)
{
    if (gl_LocalInvocationID.x == 0) has_samples = 0;
    barrier();
    uint s = gl_LocalInvocationID.x, step, row;
    if (s < ROWS) {
        find_sample(gl_WorkGroupID.y * ROWS + s, step, row);
        bool is_valid = find_x(direction, step, row, x_starts[s]) && is_sample(step, row);
        places[s] = is_valid ? ((step * DIRECTIONS + direction) * dispatch.batch + row) * UNITS : NOWHERE;
        if (is_valid) atomicOr(has_samples, 1);  // plain stores by several invocations would be a race, even of equal values
    }
    barrier();
}

void store_gates(float sums[SUMS], uint sample_lane, uint first_unit)
{
    [[unroll]] for (uint s = 0; s < SAMPLES_AT_ONCE; ++s) {
        uint place = places[s * SAMPLE_LANES + sample_lane];
        [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
            vec4 of_unit = vec4(0.0);
            [[unroll]] for (uint gate = 0; gate < GATES; ++gate) of_unit[gate] = sums[s * SAMPLE_SUMS + u * GATES + gate];
            if (place != NOWHERE) gates[place + first_unit + u * UNIT_LANES] = floatBitsToUint(of_unit);
        }
    }
}

void main()
{
    uint direction = gl_WorkGroupID.z, tile_unit = gl_WorkGroupID.x * PART_UNITS;
    uint unit_lane = gl_LocalInvocationID.x % UNIT_LANES, sample_lane = gl_LocalInvocationID.x / UNIT_LANES;
    find_samples(direction);
    if (has_samples != 0) {
        float sums[SUMS];
        [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
            uint unit = direction * UNITS + tile_unit + u * UNIT_LANES + unit_lane;
            vec4 bias = uintBitsToFloat(input_weights[DIRECTIONS * INPUT_LOADS * GATES * UNITS + unit]);
            [[unroll]] for (uint s = 0; s < SAMPLES_AT_ONCE; ++s)
                [[unroll]] for (uint gate = 0; gate < GATES; ++gate) sums[s * SAMPLE_SUMS + u * GATES + gate] = bias[gate];
        }
        multiply_tile(sums, (direction * UNITS + tile_unit) * INPUT_LOADS * GATES, sample_lane, unit_lane);
        store_gates(sums, sample_lane, tile_unit + unit_lane);
    }
}
