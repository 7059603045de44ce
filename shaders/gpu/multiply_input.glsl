// sums[r][gate] = bias + dot(X of row r, W of the gate and unit), for the gates from first_gate on. Row r of X starts at
// x_start[r].
layout(constant_id = 44) const uint INPUT_BLOCK = 1;  // loads of weights for a gate, unrolled: they are under way at once
uint x_start[ROWS];

vec4 load_x(uint row_start, uint vec)
{
    uint column = vec * 4;
    if (X_IN_VECS != 0) return has_column(column) ? aligned_x(row_start + column) : vec4(0.0);
    return strided_x(row_start, column);
}

void multiply_input(out vec4 sums[ROWS], uint direction, uint first_gate, uint end_gate, uint unit)
{
    uint start = direction * INPUT_LOADS * GATES * UNITS + unit;
    vec4 bias = uintBitsToFloat(input_weights[DIRECTIONS * INPUT_LOADS * GATES * UNITS + direction * UNITS + unit]);
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = bias;
    for (uint block = 0; block < INPUT_LOADS; block += INPUT_BLOCK)
        [[unroll]] for (uint i = 0; i < INPUT_BLOCK; ++i) {  // drivers unroll loops that start at a constant
            uint load = block + i;
            uvec4 loaded[GATES];
            [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
                loaded[gate] = input_weights[start + (load * GATES + gate) * UNITS];
            [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec)
                [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                    vec4 x = load_x(x_start[r], load * VECS_PER_LOAD + vec);
                    [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
                        sums[r][gate] += dot(x, unpack_weights(loaded[gate], vec));
                }
        }
}
