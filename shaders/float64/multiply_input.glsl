// Loads a row of X, and multiplies it with the packed input weights.
#include "../common/input.glsl"

real4 load_x(uint row_start, uint vec)
{
    real4 x = ZERO4;
    [[unroll]] for (uint c = 0; c < 4; ++c)
        if (vec * 4 + c < INPUTS)
            set_component(x, c, LOAD_ELEMENT(x_words, row_start + (vec * 4 + c) * dispatch.input_stride_i));
    return x;
}

// Returns a unit's bias plus the products of the row of X at x_start with its weights, for the gates from first_gate on.
real4 multiply_input(uint x_start, uint direction, uint first_gate, uint end_gate, uint unit)
{
    real4 sums = GET_REAL4(input_weights, DIRECTIONS * INPUT_LOADS * GATES * UNITS + direction * UNITS + unit);
    uint start = direction * INPUT_LOADS * GATES * UNITS + unit;
    [[dont_unroll]] for (uint load = 0; load < INPUT_LOADS; ++load) {
        real4 x = load_x(x_start, load);
        [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
            add_dot(sums, gate, x, GET_REAL4(input_weights, start + (load * GATES + gate) * UNITS));
    }
    return sums;
}
