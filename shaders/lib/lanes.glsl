// How a value goes from one invocation of a subgroup to the others. With SHUFFLE defined (the *_lanes kernels), by
// subgroupShuffle: needs whole subgroups of LANES invocations, which CPU drivers run and for which the host chooses these
// kernels. Without it every invocation loads every value itself: right for any subgroup width.
#ifdef SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define LANE gl_SubgroupInvocationID
#define FROM_LANE(value, lane) subgroupShuffle(value, lane)
#else
#define LANE 0
#define FROM_LANE(value, lane) value
#endif
