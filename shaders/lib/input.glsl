// The input tensor X, read as real4s along its last dimension; zero past its end. Bind X_BINDING before including.
layout(binding = X_BINDING) readonly buffer Input { uint x_words[]; };

#ifndef PAIRS
layout(binding = X_BINDING) readonly buffer InputVecs { uvec4 x_uvecs[]; };
const uint X_ALIGNMENT = ELEMENT == 0 ? 4 : 2;
const bool X_IN_VECS = INPUT_STRIDE_I == 1 && INPUTS % 4 == 0 && (INPUT_STRIDE_T | INPUT_STRIDE_B) % X_ALIGNMENT == 0;

vec4 load_aligned_x(uint place)
{
    place = whole(place);
    if (ELEMENT == 0) return uintBitsToFloat(x_uvecs[place / 4]);
    return vec4(both_halves(x_words[place / 2]), both_halves(x_words[place / 2 + 1]));
}
#endif

// Where the X of a row of `length` valid steps starts at a step; inside X for rows and steps that there are not
uint x_start_of(uint direction, uint step, uint length, uint row)
{
    return (step < length ? position_at(direction, step, length) : 0) * INPUT_STRIDE_T + min(row, BATCH - 1) * INPUT_STRIDE_B;
}

real4 load_x(uint row_start, uint vec)
{
    uint column = vec * 4;
#ifndef PAIRS
    if (X_IN_VECS) return INPUTS == INPUT_LOADS * VECS_PER_LOAD * 4 || column < INPUTS ? load_aligned_x(row_start + column) : vec4(0);
#endif
    real4 x = ZERO4;
    [[unroll]] for (uint c = 0; c < 4; ++c)
        if (column + c < INPUTS) set_component(x, c, LOAD_ELEMENT(x_words, row_start + (column + c) * INPUT_STRIDE_I));
    return x;
}
