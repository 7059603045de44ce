// A template of a function that adds the products of DOT_ROWS vectors with the packed weights of UNITS_AT_ONCE units, WORKGROUP
// apart:
//   sums[u * ROWS + row][gate] += vector(row) . weights(gate of unit + u * WORKGROUP).
// Define these before each inclusion:
//   DOT_NAME                  the function's name
//   DOT_WEIGHTS               a buffer packed as weights_start says (packed.glsl)
//   DOT_ROWS                  the number of rows, which are the tile's first ones
//   DOT_LOADS                 loads of weights for a vector, a multiple of LANES / VECS_PER_LOAD
//   DOT_VECTOR(row, vec)      the vector's vec4, which does not depend on the invocation
// Each weight is loaded once and used for all rows. A subgroup loads LANES different vec4s of a vector at once and passes them
// round. The loop over a block's loads stays a loop for llvmpipe: unrolled code does not fit the first-level cache and compiles
// slowly. It is unrolled (IN_LINE), and goes row by row, for SwiftShader, which then keeps a row's sums in registers.
#define EACH_UNIT [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u)
#define EACH_GATE [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
#define EACH_VEC [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec)
#define EACH_ROW [[unroll]] for (uint row = 0; row < DOT_ROWS; ++row)
void DOT_NAME(inout vec4 sums[TILE], uint direction, uint first_gate, uint end_gate, uint unit)
{
    uint start[UNITS_AT_ONCE];
    EACH_UNIT start[u] = weights_start(direction, unit + u * WORKGROUP, DOT_LOADS);
    for (uint block = 0; block < DOT_LOADS; block += LOADS_PER_BLOCK) {
        if (IN_LINE != 0) {
            vec4 w[LANES * UNITS_AT_ONCE * GATES];
            [[unroll]] for (uint load = 0; load < LOADS_PER_BLOCK; ++load)
                EACH_UNIT {
                    uint first = weights_place(start[u], block + load_of_turn(load), 0);  // computed once for all gates
                    EACH_GATE {
                        uvec4 loaded = DOT_WEIGHTS[first + gate * LANES];
                        EACH_VEC {
                            uint turn = load * VECS_PER_LOAD + vec;
                            w[(turn * UNITS_AT_ONCE + u) * GATES + gate] = unpack_weights(loaded, vec_of_turn(vec));
                        }
                    }
                }
            EACH_ROW {
                vec4 own = DOT_VECTOR(row, block * VECS_PER_LOAD + LANE);
                [[unroll]] for (uint turn = 0; turn < LANES; ++turn) {
                    vec4 v = in_turn(own, turn);
                    EACH_UNIT EACH_GATE sums[u * ROWS + row][gate] += dot(v, w[(turn * UNITS_AT_ONCE + u) * GATES + gate]);
                }
            }
        } else {
            vec4 own[DOT_ROWS];
            EACH_ROW own[row] = DOT_VECTOR(row, block * VECS_PER_LOAD + LANE);
            uint load = 0;
            [[dont_unroll]] do {
                uvec4 loaded[UNITS_AT_ONCE * GATES];
                EACH_UNIT EACH_GATE loaded[u * GATES + gate] = DOT_WEIGHTS[weights_place(start[u], block + load, gate)];
                EACH_VEC {
                    vec4 w[UNITS_AT_ONCE * GATES];
                    EACH_UNIT EACH_GATE w[u * GATES + gate] = unpack_weights(loaded[u * GATES + gate], vec);
                    EACH_ROW {
                        vec4 v = subgroupShuffle(own[row], load * VECS_PER_LOAD + vec);
                        EACH_UNIT EACH_GATE sums[u * ROWS + row][gate] += dot(v, w[u * GATES + gate]);
                    }
                }
            } while (++load < LOADS_PER_BLOCK);
        }
    }
}
#undef EACH_UNIT
#undef EACH_GATE
#undef EACH_VEC
#undef EACH_ROW
#undef DOT_NAME
#undef DOT_WEIGHTS
#undef DOT_ROWS
#undef DOT_LOADS
#undef DOT_VECTOR
