// Products of ROWS vectors with the packed weights of one unit: acc[row][gate] += vector(row) . weights(gate).
// A template. Define before including, once for each source:
//   DOT_NAME                  the function's name
//   DOT_WEIGHTS               a vec4 buffer packed [vec][gate][unit]
//   DOT_VECS                  vec4s in a vector, a multiple of LANES
//   DOT_VECTOR(row, vec)      the vector's vec4, identical in all invocations
// Each weight is loaded once and used for ROWS rows. In the *_lanes kernels a subgroup loads LANES different vec4s of a
// vector at once and passes them round: loads are what CPU drivers are slow at.
void DOT_NAME(inout vec4 acc[ROWS], uint weights_start, uint first_gate, uint end_gate, uint unit)
{
    for (uint block = 0; block < DOT_VECS; block += LANES) {
        vec4 own[ROWS];
        [[unroll]] for (uint row = 0; row < ROWS; ++row) own[row] = DOT_VECTOR(row, block + LANE);
        [[unroll]] for (uint lane = 0; lane < LANES; ++lane) {
            uint weights = weights_start + (block + lane) * GATES * UNITS + unit;
            vec4 w[GATES];
            [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate) w[gate] = DOT_WEIGHTS[weights + gate * UNITS];
            [[unroll]] for (uint row = 0; row < ROWS; ++row) {
                vec4 v = FROM_LANE(own[row], lane);
                [[unroll]] for (uint gate = first_gate; gate < end_gate; ++gate) acc[row][gate] += dot(v, w[gate]);
            }
        }
    }
}
#undef DOT_NAME
#undef DOT_WEIGHTS
#undef DOT_VECS
#undef DOT_VECTOR
