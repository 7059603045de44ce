#include "../common/input.glsl"
#include "../common/input_vecs.glsl"

vec4 load_x(uint row_start, uint vec)
{
    uint column = vec * 4;
    if (X_IN_VECS != 0) return has_column(column) ? aligned_x(whole(row_start + column)) : vec4(0.0);
    return strided_x(row_start, column);
}

vec4 input_bias(uint direction, uint unit)
{
    return uintBitsToFloat(input_weights[DIRECTIONS * INPUT_LOADS * GATES * UNITS + direction * UNITS + unit]);
}
