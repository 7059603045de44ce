// dot_input: products of ROWS rows of X, which start at x_start, with the packed input weights. The packed biases stand
// behind the weights. Bind INPUT_WEIGHTS_BINDING before including.
layout(binding = INPUT_WEIGHTS_BINDING) readonly buffer InputWeights { vec4 input_weights[]; };

vec4 input_bias(uint direction, uint unit)
{
    return input_weights[DIRECTIONS * INPUT_VECS * GATES * UNITS + direction * UNITS + unit];
}

#define DOT_NAME dot_input
#define DOT_WEIGHTS input_weights
#define DOT_VECS INPUT_VECS
#define DOT_VECTOR(row, vec) load_x(x_start[row], vec)
#include "dot.glsl"
