// How a value goes from one invocation of a subgroup to the others. With SHUFFLE defined (the *_lanes kernels), by
// subgroupShuffle: needs whole subgroups of LANES invocations, which the host checks. Without it every invocation loads
// every value itself, from what is on chip: right for any subgroup width.
#ifdef SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define LANE gl_SubgroupInvocationID
#define FROM_LANE(value, lane) subgroupShuffle(value, lane)
#else
#define LANE 0
#define FROM_LANE(value, lane) value
#endif
