// A tile's sums in registers: UNITS_AT_ONCE units of ROWS rows for each invocation, and how vectors go round a subgroup.
layout(constant_id = 41) const uint IN_LINE = 1;  // whether the loads of a block of weights are unrolled
const uint TILE = UNITS_AT_ONCE * ROWS;
const uint LOADS_PER_BLOCK = LANES / VECS_PER_LOAD;

// An element of an array that is in registers. By an index, the array would go to memory, and compiling take seconds.
vec4 pick(vec4 values[TILE], uint i)
{
    vec4 value = values[0];
    [[unroll]] for (uint k = 1; k < TILE; ++k) value = mix(value, values[k], bvec4(i == k));
    return value;
}

// Products pass a vector's vec4s round a subgroup in LANES turns. Which of them an invocation has at a turn need not be the
// same for all, if each takes the weights that belong to its own: so four lanes swap, one instruction on SwiftShader, where a
// shuffle or broadcast is many.
vec4 in_turn(vec4 value, uint turn)
{
    if (LANES != 4) return subgroupShuffle(value, turn);
    return turn == 0 ? value : turn == 1 ? subgroupQuadSwapHorizontal(value)
         : turn == 2 ? subgroupQuadSwapVertical(value) : subgroupQuadSwapDiagonal(value);
}

uint lane_of_turn(uint turn) { return LANES == 4 ? LANE ^ turn : turn; }
uint load_of_turn(uint load) { return lane_of_turn(load * VECS_PER_LOAD) / VECS_PER_LOAD; }
uint vec_of_turn(uint vec) { return lane_of_turn(vec) % VECS_PER_LOAD; }
