// dot_input: products of ROWS rows of X, which start at x_start, with the packed input weights (input_weights.glsl).

void set_input_bias(out real4 acc[TILE], uint direction, uint unit)
{
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
        real4 bias = input_bias(direction, unit + u * WORKGROUP);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) acc[u * ROWS + r] = bias;
    }
}

#define DOT_NAME dot_input
#define DOT_WEIGHTS input_weights
#define DOT_ROWS ROWS
#define DOT_LOADS INPUT_LOADS
#define DOT_VECTOR(row, vec) load_x(x_start[row], vec)
#include "dot.glsl"
