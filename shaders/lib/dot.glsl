// Products of DOT_ROWS vectors with the packed weights of UNITS_AT_ONCE units, WORKGROUP apart:
//   acc[u * ROWS + row][gate] += vector(row) . weights(gate of unit + u * WORKGROUP).
// A template. Define before including, once for each source:
//   DOT_NAME                  the function's name
//   DOT_WEIGHTS               a buffer packed as weights_start says (lanes.glsl)
//   DOT_ROWS                  rows of the tile, the first ones
//   DOT_LOADS                 loads of weights for a vector, a multiple of what LANES vec4s take
//   DOT_VECTOR(row, vec)      the vector's real4, identical in all invocations
// Each weight is loaded once and used for all rows. In the *_lanes kernels a subgroup loads LANES different vec4s of a
// vector at once and passes them round: loads are what CPU drivers are slow at. Their loop over loads stays a loop: in line
// it is slower (its code no longer fits the first-level cache) and takes long to compile.
void DOT_NAME(inout real4 acc[TILE], uint direction, uint first_gate, uint end_gate, uint unit)
{
    uint start[UNITS_AT_ONCE];
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) start[u] = weights_start(direction, unit + u * WORKGROUP, DOT_LOADS);
    for (uint block = 0; block < DOT_LOADS; block += LOADS_PER_BLOCK) {
        uint first_vec = block * VECS_PER_LOAD;
#ifdef SHUFFLE
        vec4 own[DOT_ROWS];
        [[unroll]] for (uint row = 0; row < DOT_ROWS; ++row) own[row] = DOT_VECTOR(row, first_vec + LANE);
#endif
        uint first = 0;
        LOAD_LOOP do {
            [[unroll]] for (uint i = 0; i < LOADS_IN_LINE; ++i) {
                uint load = LOADS_IN_LINE == LOADS_PER_BLOCK ? i : first + i;
                loaded_weights loaded[UNITS_AT_ONCE * GATES];
                [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u)
                    [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
                        loaded[u * GATES + gate] = LOAD_WEIGHTS(DOT_WEIGHTS, weights_place(start[u], block + load, gate));
                [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec) {
                    real4 w[UNITS_AT_ONCE * GATES];
                    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u)
                        [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
                            w[u * GATES + gate] = unpack_weights(loaded[u * GATES + gate], vec);
                    [[unroll]] for (uint row = 0; row < DOT_ROWS; ++row) {
#ifdef SHUFFLE
                        vec4 v = from_lane(own[row], load * VECS_PER_LOAD + vec);
#else
                        real4 v = DOT_VECTOR(row, first_vec + load * VECS_PER_LOAD + vec);
#endif
                        [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u)
                            [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
                                add_dot(acc[u * ROWS + row], gate, v, w[u * GATES + gate]);
                    }
                }
            }
            first += LOADS_IN_LINE;
        } while (LOADS_IN_LINE != LOADS_PER_BLOCK && first < LOADS_PER_BLOCK);
    }
}
#undef DOT_NAME
#undef DOT_WEIGHTS
#undef DOT_ROWS
#undef DOT_LOADS
#undef DOT_VECTOR
