// All kernels for CPU drivers include this. These drivers run a subgroup as one vector of a processor, and loads are slow: a
// subgroup loads different values into its invocations (lanes) once and passes them round by shuffles. The kernels need whole
// subgroups of LANES invocations. Such drivers also run both sides of an `if`, but they do skip a loop without iterations
// (ONCE_IF).
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_quad : require
layout(constant_id = 40) const uint LANES = 1;  // subgroup width
#define LANE gl_SubgroupInvocationID
#define ONCE_IF(condition) for (uint once = 0; once < uint(condition); ++once)
#define ROW_LOOP [[dont_unroll]]  // variables index arrays as fast as constants do here, and a loop compiles faster

// Returns i, as no index reaches 0xFFFFFFFE. llvmpipe runs a load or store as a loop over a subgroup's invocations, and LLVM
// moves the additions for the index into that loop. The min() keeps them out.
uint whole(uint i) { return min(i, 0xFFFFFFFEu); }
