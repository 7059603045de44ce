// The input's part of the gates, multiplied in the time loop: one dispatch less where there are few steps.
#include "../common/input.glsl"
#include "../common/input_vecs.glsl"
#include "multiply_input.glsl"

void load_input_part(out vec4 x[ROWS], uint phase, uint step, uint unit)
{
    [[unroll]] for (uint r = 0; r < ROWS; ++r) x_start[r] = x_start_of(direction, step, length_of(r), row_of(r));
    multiply_input(x, direction, first_gate(phase), end_gate(phase), unit);
}
