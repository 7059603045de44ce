// Runs a phase of a time step in invocations that hold units.
layout(constant_id = 70) const uint FUSED = 0;  // whether the time loop multiplies the input, instead of reading `gates`
// The number of rows for which products are computed once the other half of a tile's rows have finished.
const uint HALF_ROWS = (ROWS + 1) / 2;

#define DOT_NAME multiply_all
#define DOT_WEIGHTS hidden_weights
#define DOT_ROWS ROWS
#define DOT_LOADS HIDDEN_LOADS
#define DOT_VECTOR(row, vec) load_state_vec(source, row, vec)
#include "dot.glsl"

#define DOT_NAME multiply_half
#define DOT_WEIGHTS hidden_weights
#define DOT_ROWS HALF_ROWS
#define DOT_LOADS HIDDEN_LOADS
#define DOT_VECTOR(row, vec) load_state_vec(source, row, vec)
#include "dot.glsl"

void multiply_hidden(inout vec4 sums[TILE], uint first_gate, uint end_gate, uint unit)
{
    bool half_of_rows = HAS_LENGTHS != 0 && active_rows <= HALF_ROWS;
    ONCE_IF(!half_of_rows) multiply_all(sums, direction, first_gate, end_gate, unit);
    ONCE_IF(half_of_rows) multiply_half(sums, direction, first_gate, end_gate, unit);
}

// Computes the input's part of the gates, at least of those that the phase needs.
void multiply_fused_input(out vec4 x[TILE], uint phase, uint step, uint unit)
{
    [[unroll]] for (uint r = 0; r < ROWS; ++r) x_start[r] = x_start_of(direction, step, length_of(r), row_of(r));
    set_input_bias(x, direction, unit);
    multiply_input(x, direction, first_gate(phase), end_gate(phase), unit);
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    for (uint first = first_unit; first < end_unit; first += WORKGROUP * UNITS_AT_ONCE) {
        uint unit = first + gl_LocalInvocationID.x;
        vec4 x[TILE];
        if (FUSED != 0) multiply_fused_input(x, phase, step, unit);
        vec4 recurrent[TILE];
        [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
            vec4 bias = hidden_extra(0, unit + u * WORKGROUP);
            [[unroll]] for (uint r = 0; r < ROWS; ++r) recurrent[u * ROWS + r] = bias;
        }
        multiply_hidden(recurrent, first_gate(phase), end_gate(phase), unit);
        ROW_LOOP for (uint u = 0; u < UNITS_AT_ONCE; ++u)
            ROW_LOOP for (uint r = 0; r < ACTIVE_ROWS; ++r) {
                uint i = u * ROWS + r;
                uint of_row = unit + u * WORKGROUP;
                if (of_row < HIDDEN && step < length_of(r)) {
                    if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1, of_row);
                    finish_phase(phase, step, r, of_row, FUSED != 0 ? pick(x, i) : load_gates(step, r, of_row),
                                 pick(recurrent, i));
                }
            }
    }
    phase_barrier();
}

void run_step(uint step)
{
    drop_finished_rows(step);
    if (has_phase(0)) run_phase(0, step);
    if (PHASES == 2 && has_phase(1)) run_phase(1, step);
}

void begin_tile(out uint steps, out uint shortest) { sort_rows(steps, shortest); }
