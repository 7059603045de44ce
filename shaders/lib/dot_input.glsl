// dot_input: products of ROWS rows of X, which start at x_start, with the packed input weights. The packed biases stand
// behind the weights. Bind INPUT_WEIGHTS_BINDING before including.
layout(binding = INPUT_WEIGHTS_BINDING) readonly buffer InputWeights { uvec4 input_weights[]; };

real4 input_bias(uint direction, uint unit)
{
    uint i = DIRECTIONS * INPUT_LOADS * GATES * UNITS + direction * UNITS + unit;
    return GET_REAL4(input_weights, i);
}

#define DOT_NAME dot_input
#define DOT_WEIGHTS input_weights
#define DOT_LOADS INPUT_LOADS
#define DOT_VECTOR(row, vec) load_x(x_start[row], vec)
#include "dot.glsl"
