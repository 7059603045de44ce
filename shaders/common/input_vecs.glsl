// X in vec4s along its last dimension, 0 past its end.
layout(binding = 0) readonly buffer InputVecs { uvec4 x_uvecs[]; };
const uint X_ALIGNMENT = ELEMENT == FLOAT32 ? 4 : 2;
const bool X_IN_VECS = INPUT_STRIDE_I == 1 && INPUTS % 4 == 0 && (INPUT_STRIDE_T | INPUT_STRIDE_B) % X_ALIGNMENT == 0;

vec4 aligned_x(uint place)
{
    if (ELEMENT == FLOAT32) return uintBitsToFloat(x_uvecs[place / 4]);
    return vec4(two_floats(x_words[place / 2]), two_floats(x_words[place / 2 + 1]));
}

vec4 strided_x(uint row_start, uint column)
{
    vec4 x = vec4(0.0);
    [[unroll]] for (uint c = 0; c < 4; ++c)
        if (column + c < INPUTS) x[c] = LOAD_ELEMENT(x_words, row_start + (column + c) * INPUT_STRIDE_I);
    return x;
}

bool has_column(uint column) { return INPUTS == INPUT_LOADS * VECS_PER_LOAD * 4 || column < INPUTS; }
