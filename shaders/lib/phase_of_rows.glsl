// One phase of a step, for kernels whose invocations hold rows (row_lanes.glsl). A block of h is multiplied with the weights
// of all units before the next one is loaded.
#define BLOCK_VECTOR(v, vec) load_state_vec(source, (v) * LANES + LANE, vec)
#define BLOCK_WEIGHTS hidden_weights
#include "row_lanes.glsl"
const uint BLOCKS = HIDDEN_LOADS / BLOCK_LOADS;

// Behind the tile's slots: what the blocks so far came to, for each gate of a unit a vec4 of each invocation. Between blocks
// all units of the part wait there, otherwise the one in hand.
uint sums_place(uint unit, uint gate)
{
    uint place = BLOCKS == 1 ? first_unit : unit;
    return tile_state + SLOTS * ROWS * HIDDEN_VECS + (place * GATES + gate) * LANES + LANE;
}

void multiply_unit(uint block, uint phase, uint unit)
{
    ROW_LOOP for (uint gate = first_gate(phase); gate < end_gate(phase); ++gate) {
        vec4 products = multiply_block(block, HIDDEN_LOADS, direction, gate, unit);
        uint place = sums_place(unit, gate);
        if (BLOCKS > 1) products += mix(state_vecs[place], vec4(0.0), bvec4(block == 0));
        state_vecs[place] = products;
    }
}

void finish_unit(uint phase, uint step, uint unit)
{
    vec4 x_vectors[GATES], sum_vectors[GATES];
    [[unroll]] for (uint gate = 0; gate < GATES; ++gate) {
        x_vectors[gate] = sum_vectors[gate] = vec4(0.0);
        if (gate >= first_gate(phase) && gate < end_gate(phase)) {
            x_vectors[gate] = uintBitsToFloat(gates[gates_place(step - chunk.gates_step, direction, gl_WorkGroupID.x, unit, gate)]);
            sum_vectors[gate] = state_vecs[sums_place(unit, gate)];
        }
    }
    vec4 bias = hidden_extra(0, unit);
    if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1, unit);
    ROW_LOOP for (uint v = 0; v < VECTORS; ++v) {
        uint r = v * LANES + LANE;
        if (step < length_of(r)) {
            vec4 x = vec4(0.0), recurrent = bias;
            [[unroll]] for (uint gate = 0; gate < GATES; ++gate) {
                x[gate] = of_vector(x_vectors[gate], v);
                recurrent[gate] += of_vector(sum_vectors[gate], v);
            }
            finish_phase(phase, step, unit, r, x, recurrent);
        }
    }
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, step & 1);
    ROW_LOOP for (uint block = 0; block < BLOCKS; ++block) {
        load_block(block);
        for (uint unit = first_unit; unit < end_unit; ++unit) {
            multiply_unit(block, phase, unit);
            bool last = BLOCKS == 1 || block + 1 == BLOCKS;
            ONCE_IF(last && phase == 0) finish_unit(0, step, unit);
            if (PHASES == 2) ONCE_IF(last && phase == 1) finish_unit(1, step, unit);
        }
    }
    phase_barrier();
}
