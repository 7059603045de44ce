// One phase of a step, for kernels whose invocations hold units.
#include "input.glsl"
#include "input_weights.glsl"
uint x_start[ROWS];
#include "dot_input.glsl"

#define HIDDEN_VECTOR(row, vec) load_state_vec(source, row, vec)
#define DOT_NAME dot_hidden
#define DOT_WEIGHTS hidden_weights
#define DOT_ROWS ROWS
#define DOT_LOADS HIDDEN_LOADS
#define DOT_VECTOR HIDDEN_VECTOR
#include "dot.glsl"

#ifdef SHUFFLE
// Once half of a tile's rows have finished, products are computed for the other half only.
const uint HALF_ROWS = (ROWS + 1) / 2;

#define DOT_NAME dot_hidden_of_half
#define DOT_WEIGHTS hidden_weights
#define DOT_ROWS HALF_ROWS
#define DOT_LOADS HIDDEN_LOADS
#define DOT_VECTOR HIDDEN_VECTOR
#include "dot.glsl"

void multiply_hidden(inout real4 acc[TILE], uint first_gate, uint end_gate, uint unit)
{
    bool half_of_rows = HAS_LENGTHS != 0 && active_rows <= HALF_ROWS;
    ONCE_IF(!half_of_rows) dot_hidden(acc, direction, first_gate, end_gate, unit);
    ONCE_IF(half_of_rows) dot_hidden_of_half(acc, direction, first_gate, end_gate, unit);
}
#else
void multiply_hidden(inout real4 acc[TILE], uint first_gate, uint end_gate, uint unit)
{
    dot_hidden(acc, direction, first_gate, end_gate, unit);
}
#endif

// The input's part of the gates (at least of the phase's) for the units of a tile, by the same dot product
void multiply_input(out real4 x[TILE], uint phase, uint step, uint unit)
{
    [[unroll]] for (uint r = 0; r < ROWS; ++r) x_start[r] = x_start_of(direction, step, length_of(r), row_of(r));
    set_input_bias(x, direction, unit);
    dot_input(x, direction, first_gate(phase), end_gate(phase), unit);
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    for (uint first = first_unit; first < end_unit; first += WORKGROUP * UNITS_AT_ONCE) {
        uint unit = first + gl_LocalInvocationID.x;
        real4 x[TILE];
        if (FUSED != 0) multiply_input(x, phase, step, unit);
        real4 recurrent[TILE];
        [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
            real4 bias = hidden_extra(0, unit + u * WORKGROUP);
            [[unroll]] for (uint r = 0; r < ROWS; ++r) recurrent[u * ROWS + r] = bias;
        }
        multiply_hidden(recurrent, first_gate(phase), end_gate(phase), unit);
        ROW_LOOP for (uint u = 0; u < UNITS_AT_ONCE; ++u)
            ROW_LOOP for (uint r = 0; r < ACTIVE_ROWS; ++r) {
                uint i = u * ROWS + r;
                uint of_row = unit + u * WORKGROUP;
                if (of_row < HIDDEN && step < length_of(r)) {
                    if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1, of_row);
                    finish_phase(phase, step, of_row, r, FUSED != 0 ? PICK(x, i) : load_gates(step, r, of_row),
                                 PICK(recurrent, i));
                }
            }
    }
    phase_barrier();
}
