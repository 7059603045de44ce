// The input tensor X, read as vec4s along its last dimension; zero past its end. Bind X_BINDING before including.
layout(binding = X_BINDING) readonly buffer Input { float x_scalars[]; };
layout(binding = X_BINDING) readonly buffer InputVecs { vec4 x_vecs[]; };

const bool X_IN_VECS = INPUT_STRIDE_I == 1 && (INPUTS | INPUT_STRIDE_T | INPUT_STRIDE_B) % 4 == 0;

vec4 load_x(uint row_start, uint vec)
{
    uint column = vec * 4;
    if (X_IN_VECS) return column < INPUTS ? x_vecs[row_start / 4 + vec] : vec4(0);
    vec4 x = vec4(0);
    [[unroll]] for (uint c = 0; c < 4; ++c)
        if (column + c < INPUTS) x[c] = x_scalars[row_start + (column + c) * INPUT_STRIDE_I];
    return x;
}
