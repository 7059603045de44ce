// A phase of a time step, for invocations that hold rows (rows_in_lanes.glsl). A block of h is multiplied with the weights of
// all units before the next one is loaded.
layout(binding = 0) readonly buffer Gates { uvec4 gates[]; };
#define BLOCK_VECTOR(v, vec) load_state_vec(source, (v) * LANES + LANE, vec)
#define BLOCK_WEIGHTS hidden_weights
#include "rows_in_lanes.glsl"
const uint BLOCKS = HIDDEN_LOADS / BLOCK_LOADS;

// Behind the tile's slots: what the blocks so far came to, for each gate of a unit a vec4 of each invocation, where it waits
// for the next block
uint sums_place(uint unit, uint gate)
{
    return whole(tile_state + SLOTS * ROWS * HIDDEN_VECS + (unit * GATES + gate) * LANES + LANE);
}

// Adds the block's products to that; of the last block they stay in registers, for the unit's end.
void multiply_unit(uint block, uint phase, uint unit, out vec4 sums[GATES])
{
    [[unroll]] for (uint gate = 0; gate < GATES; ++gate) sums[gate] = vec4(0.0);
    ROW_LOOP for (uint gate = first_gate(phase); gate < end_gate(phase); ++gate) {
        vec4 products = multiply_block(block, HIDDEN_LOADS, direction, gate, unit);
        if (BLOCKS > 1) {
            uint place = sums_place(unit, gate);
            products += mix(state_vecs[place], vec4(0.0), bvec4(block == 0));
            if (block + 1 < BLOCKS) state_vecs[place] = products;
        }
        [[unroll]] for (uint g = 0; g < GATES; ++g) sums[g] = mix(sums[g], products, bvec4(g == gate));
    }
}

void finish_unit(uint phase, uint step, uint unit, vec4 sums[GATES])
{
    vec4 x_vectors[GATES];
    [[unroll]] for (uint gate = 0; gate < GATES; ++gate) {
        x_vectors[gate] = vec4(0.0);
        if (gate >= first_gate(phase) && gate < end_gate(phase))
            x_vectors[gate] = uintBitsToFloat(
                gates[gates_place_of_tile(step - dispatch.gates_step, direction, gl_WorkGroupID.x, unit, gate)]);
    }
    vec4 bias = hidden_extra(0, unit);
    if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1, unit);
    ROW_LOOP for (uint v = 0; v < VECTORS; ++v) {
        uint r = v * LANES + LANE;
        if (step < length_of(r)) {
            vec4 x = vec4(0.0), recurrent = bias;
            [[unroll]] for (uint gate = 0; gate < GATES; ++gate) {
                x[gate] = of_vector(x_vectors[gate], v);
                recurrent[gate] += of_vector(sums[gate], v);
            }
            finish_phase(phase, step, r, unit, x, recurrent);
        }
    }
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    ROW_LOOP for (uint block = 0; block < BLOCKS; ++block) {
        load_block(block);
        for (uint unit = first_unit; unit < end_unit; ++unit) {
            vec4 sums[GATES];
            multiply_unit(block, phase, unit, sums);
            bool last = BLOCKS == 1 || block + 1 == BLOCKS;
            ONCE_IF(last && phase == 0) finish_unit(0, step, unit, sums);
            if (PHASES == 2) ONCE_IF(last && phase == 1) finish_unit(1, step, unit, sums);
        }
    }
    phase_barrier();
}

void run_step(uint step)
{
    for (uint phase = 0; phase < PHASES; ++phase) ONCE_IF(has_phase(phase)) run_phase(phase, step);  // long code: in line once
}

void store_output(uint i, float value) { STORE_ELEMENT(output_sequence, whole(i), value); }
