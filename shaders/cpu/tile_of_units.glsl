// Keeps the sums of UNITS_AT_ONCE units and ROWS rows in an invocation's registers, and passes vectors round a subgroup.
layout(constant_id = 41) const uint IN_LINE = 1;  // whether the loads of a block of weights are unrolled
const uint TILE = UNITS_AT_ONCE * ROWS;
const uint LOADS_PER_BLOCK = LANES / VECS_PER_LOAD;

// Returns values[i] without an index by a variable, which would put the array into memory and take seconds to compile.
vec4 pick(vec4 values[TILE], uint i)
{
    vec4 value = values[0];
    [[unroll]] for (uint k = 1; k < TILE; ++k) value = mix(value, values[k], bvec4(i == k));
    return value;
}

// Returns the vec4 that this invocation has in a turn: products pass a vector's vec4s round a subgroup in LANES turns.
// Invocations may have different ones in a turn, if each takes the weights for its own. So four lanes swap: that is one
// instruction on SwiftShader, and a shuffle or broadcast is many.
vec4 in_turn(vec4 value, uint turn)
{
    if (LANES != 4) return subgroupShuffle(value, turn);
    return turn == 0 ? value : turn == 1 ? subgroupQuadSwapHorizontal(value)
         : turn == 2 ? subgroupQuadSwapVertical(value) : subgroupQuadSwapDiagonal(value);
}

uint lane_of_turn(uint turn) { return LANES == 4 ? LANE ^ turn : turn; }
uint load_of_turn(uint load) { return lane_of_turn(load * VECS_PER_LOAD) / VECS_PER_LOAD; }
uint vec_of_turn(uint vec) { return lane_of_turn(vec) % VECS_PER_LOAD; }
