// Loads X in vec4s along its last dimension, with zeros past its end.
layout(binding = 0) readonly buffer InputVecs { uvec4 x_uvecs[]; };
layout(constant_id = 15) const uint X_IN_VECS = 0;  // whether the strides allow loads of whole vec4s

vec4 aligned_x(uint place)
{
    if (ELEMENT == FLOAT32) return uintBitsToFloat(x_uvecs[place / 4]);
    return vec4(two_floats(x_words[place / 2]), two_floats(x_words[place / 2 + 1]));
}

vec4 strided_x(uint row_start, uint column)
{
    vec4 x = vec4(0.0);
    [[unroll]] for (uint c = 0; c < 4; ++c)
        if (column + c < INPUTS) x[c] = LOAD_ELEMENT(x_words, row_start + (column + c) * dispatch.input_stride_i);
    return x;
}

bool has_column(uint column) { return INPUTS == INPUT_LOADS * VECS_PER_LOAD * 4 || column < INPUTS; }
