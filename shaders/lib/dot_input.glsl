// dot_input: products of ROWS rows of X, which start at x_start, with the packed input weights. The packed biases stand
// behind the weights. Bind INPUT_WEIGHTS_BINDING before including.
layout(binding = INPUT_WEIGHTS_BINDING) readonly buffer InputWeights { uvec4 input_weights[]; };

void set_input_bias(out real4 acc[TILE], uint direction, uint unit)
{
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
        uint i = DIRECTIONS * INPUT_LOADS * GATES * UNITS + direction * UNITS + unit + u * WORKGROUP;
        real4 bias = GET_REAL4(input_weights, i);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) acc[u * ROWS + r] = bias;
    }
}

#define DOT_NAME dot_input
#define DOT_WEIGHTS input_weights
#define DOT_ROWS ROWS
#define DOT_LOADS INPUT_LOADS
#define DOT_VECTOR(row, vec) load_x(x_start[row], vec)
#include "dot.glsl"
