// For drivers that run a subgroup as one vector of a processor. There, loads are slow: a subgroup loads different values into
// its invocations (lanes) once and passes them round by shuffles. The kernels here need whole subgroups of LANES invocations.
// Such drivers also execute both sides of an `if`; a loop of 0 or 1 iterations is really skipped.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_quad : require
layout(constant_id = 40) const uint LANES = 1;  // subgroup width
#define LANE gl_SubgroupInvocationID
#define ONCE_IF(condition) for (uint once = 0; once < uint(condition); ++once)
#define ROW_LOOP [[dont_unroll]]  // arrays are indexed as fast by variables as by constants, and a loop compiles faster

// Identity: no index reaches 0xFFFFFFFE. llvmpipe runs a load or store as a loop over a subgroup's invocations, and LLVM moves
// the additions that end in its index into that loop. The min() keeps them out.
uint whole(uint i) { return min(i, 0xFFFFFFFEu); }
