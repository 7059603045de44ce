// The *_lanes kernels (SHUFFLE) pass values from one invocation of a subgroup to the others by shuffles and swaps: they need
// whole subgroups of LANES invocations, which CPU drivers run and for which the host chooses these kernels. In the others
// every invocation loads every value itself: right for any subgroup width.
#ifdef SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_quad : require
layout(constant_id = 40) const uint LANES = 1;  // subgroup width
#define LANE gl_SubgroupInvocationID

// Products pass a vector's vec4s round a subgroup in LANES turns. Which of them an invocation has at a turn need not be the same
// for all, if each takes the weights that belong to its own: so four lanes swap, an instruction on SwiftShader, where a shuffle
// or broadcast is many.
vec4 in_turn(vec4 value, uint turn)
{
    if (LANES != 4) return subgroupShuffle(value, turn);
    return turn == 0 ? value : turn == 1 ? subgroupQuadSwapHorizontal(value)
         : turn == 2 ? subgroupQuadSwapVertical(value) : subgroupQuadSwapDiagonal(value);
}

uint lane_of_turn(uint turn) { return LANES == 4 ? LANE ^ turn : turn; }
const uint LOADS_PER_BLOCK = LANES / VECS_PER_LOAD;
uint load_of_turn(uint load) { return lane_of_turn(load * VECS_PER_LOAD) / VECS_PER_LOAD; }
uint vec_of_turn(uint vec) { return lane_of_turn(vec) % VECS_PER_LOAD; }
layout(constant_id = 41) const uint IN_LINE = 1;  // whether a block's loads are in line, not in a loop
#ifndef ROW_LANES
#define UNITS_IN_LANES  // a subgroup's invocations hold units side by side, not rows
#endif
#else
layout(constant_id = 43) const uint LOADS_PER_BLOCK = 1;  // of weights: in line, so that a GPU has all of them under way
#endif

// Packed weights and `gates` lie so that what a subgroup reads, one load after the other, is in one place: those of LANES units
// together. Elsewhere all units are together, for the invocations that read them side by side.
#ifdef SHUFFLE
#define UNITS_TOGETHER LANES
uint first_together(uint unit) { return unit / LANES * LANES; }
#else
#define UNITS_TOGETHER UNITS
uint first_together(uint unit) { return 0; }
#endif

// An index that stays one value, as none is greater than this bound. llvmpipe's load or store is a loop over invocations, into
// which LLVM moves the additions that end in an index: each of their terms then goes through memory for each invocation.
#ifdef SHUFFLE
uint whole(uint i) { return min(i, 0xFFFFFFFEu); }
#else
uint whole(uint i) { return i; }
#endif

// Where a unit's weights start, in loads: [direction][unit / UNITS_TOGETHER][load][gate][unit % UNITS_TOGETHER]
uint weights_start(uint direction, uint unit, uint loads)
{
    uint first = first_together(unit);
    return (direction * UNITS + first) * loads * GATES + unit - first;
}

uint weights_place(uint start, uint load, uint gate) { return start + (load * GATES + gate) * UNITS_TOGETHER; }
