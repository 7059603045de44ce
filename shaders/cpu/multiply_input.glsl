// Defines multiply_input, which adds the products of the ROWS rows of X that start at x_start with the packed input weights. A
// kernel that keeps a tile's X in private memory defines X_VECTOR(row, vec) before including this.
#ifndef X_VECTOR
#define X_VECTOR(row, vec) load_x(x_start[row], vec)
#endif
uint x_start[ROWS];

void set_input_bias(out vec4 sums[TILE], uint direction, uint unit)
{
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
        vec4 bias = input_bias(direction, unit + u * WORKGROUP);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[u * ROWS + r] = bias;
    }
}

#define DOT_NAME multiply_input
#define DOT_WEIGHTS input_weights
#define DOT_ROWS ROWS
#define DOT_LOADS INPUT_LOADS
#define DOT_VECTOR(row, vec) X_VECTOR(row, vec)
#include "dot.glsl"
