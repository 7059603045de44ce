// Products of ROWS vectors with the packed weights of one unit: acc[row][gate] += vector(row) . weights(gate).
// A template. Define before including, once for each source:
//   DOT_NAME                  the function's name
//   DOT_WEIGHTS               a buffer packed [load][gate][unit] (weights.glsl)
//   DOT_LOADS                 loads of weights for a vector, a multiple of what LANES vec4s take
//   DOT_VECTOR(row, vec)      the vector's real4, identical in all invocations
// Each weight is loaded once and used for ROWS rows. In the *_lanes kernels a subgroup loads LANES different vec4s of a
// vector at once and passes them round: loads are what CPU drivers are slow at.
void DOT_NAME(inout real4 acc[ROWS], uint weights_start, uint first_gate, uint end_gate, uint unit)
{
    for (uint block = 0; block < DOT_LOADS; block += LOADS_PER_BLOCK) {
        uint first_vec = block * VECS_PER_LOAD;
#ifdef SHUFFLE
        vec4 own[ROWS];
        [[unroll]] for (uint row = 0; row < ROWS; ++row) own[row] = DOT_VECTOR(row, first_vec + LANE);
#endif
        [[unroll]] for (uint load = 0; load < LOADS_PER_BLOCK; ++load) {
            uint weights = weights_start + (block + load) * GATES * UNITS + unit;
            loaded_weights loaded[GATES];
            [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate)
                loaded[gate] = LOAD_WEIGHTS(DOT_WEIGHTS, weights + gate * UNITS);
            [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec) {
                real4 w[GATES];
                [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate) w[gate] = unpack_weights(loaded[gate], vec);
                [[unroll]] for (uint row = 0; row < ROWS; ++row) {
#ifdef SHUFFLE
                    vec4 v = FROM_LANE(own[row], load * VECS_PER_LOAD + vec);
#else
                    real4 v = DOT_VECTOR(row, first_vec + load * VECS_PER_LOAD + vec);
#endif
                    [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate) add_dot(acc[row], gate, v, w[gate]);
                }
            }
        }
    }
}
#undef DOT_NAME
#undef DOT_WEIGHTS
#undef DOT_LOADS
#undef DOT_VECTOR
