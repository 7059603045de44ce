// Products of DOT_ROWS vectors with the packed weights of UNITS_AT_ONCE units, WORKGROUP apart:
//   acc[u * ROWS + row][gate] += vector(row) . weights(gate of unit + u * WORKGROUP).
// A template. Define before including, once for each source:
//   DOT_NAME                  the function's name
//   DOT_WEIGHTS               a buffer packed as weights_start says (lanes.glsl)
//   DOT_ROWS                  rows of the tile, the first ones
//   DOT_LOADS                 loads of weights for a vector, a multiple of what LANES vec4s take
//   DOT_VECTOR(row, vec)      the vector's real4, identical in all invocations
// Each weight is loaded once and used for all rows. In the *_lanes kernels a subgroup loads LANES different vec4s of a
// vector at once and passes them round: loads are what CPU drivers are slow at. For llvmpipe, their loop over loads stays a
// loop: in line it is slower (its code no longer fits the first-level cache) and takes long to compile. SwiftShader needs them
// in line, and row by row, as then it keeps a row's sums in registers.
#define EACH_UNIT [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u)
#define EACH_GATE [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
#define EACH_VEC [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec)
#define EACH_ROW [[unroll]] for (uint row = 0; row < DOT_ROWS; ++row)
#ifdef SHUFFLE
#define LOAD_LOOP [[dont_unroll]]
#define VECTOR_OF_LOAD(row, vec) subgroupShuffle(own[row], load * VECS_PER_LOAD + vec)
#else
#define LOAD_LOOP [[unroll]]
#define VECTOR_OF_LOAD(row, vec) DOT_VECTOR(row, (block + load) * VECS_PER_LOAD + vec)
#endif
void DOT_NAME(inout real4 acc[TILE], uint direction, uint first_gate, uint end_gate, uint unit)
{
    uint start[UNITS_AT_ONCE];
    EACH_UNIT start[u] = weights_start(direction, unit + u * WORKGROUP, DOT_LOADS);
    for (uint block = 0; block < DOT_LOADS; block += LOADS_PER_BLOCK) {
#ifdef SHUFFLE
        if (IN_LINE != 0) {
            vec4 w[LANES * UNITS_AT_ONCE * GATES];
            [[unroll]] for (uint load = 0; load < LOADS_PER_BLOCK; ++load)
                EACH_UNIT {
                    uint first = weights_place(start[u], block + load_of_turn(load), 0);  // worked out once for all gates
                    EACH_GATE {
                        uvec4 loaded = LOAD_WEIGHTS(DOT_WEIGHTS, first + gate * UNITS_TOGETHER);
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
                    EACH_UNIT EACH_GATE add_dot(acc[u * ROWS + row], gate, v, w[(turn * UNITS_AT_ONCE + u) * GATES + gate]);
                }
            }
        } else {
            vec4 own[DOT_ROWS];
            EACH_ROW own[row] = DOT_VECTOR(row, block * VECS_PER_LOAD + LANE);
#else
        {
#endif
            uint load = 0;
            LOAD_LOOP do {
                loaded_weights loaded[UNITS_AT_ONCE * GATES];
                EACH_UNIT EACH_GATE loaded[u * GATES + gate] = LOAD_WEIGHTS(DOT_WEIGHTS, weights_place(start[u], block + load, gate));
                EACH_VEC {
                    real4 w[UNITS_AT_ONCE * GATES];
                    EACH_UNIT EACH_GATE w[u * GATES + gate] = unpack_weights(loaded[u * GATES + gate], vec);
                    EACH_ROW {
                        real4 v = VECTOR_OF_LOAD(row, vec);
                        EACH_UNIT EACH_GATE add_dot(acc[u * ROWS + row], gate, v, w[u * GATES + gate]);
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
#undef LOAD_LOOP
#undef VECTOR_OF_LOAD
#undef DOT_NAME
#undef DOT_WEIGHTS
#undef DOT_ROWS
#undef DOT_LOADS
#undef DOT_VECTOR
