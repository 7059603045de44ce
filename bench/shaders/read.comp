// Reads of a buffer, each workgroup its own part of it again and again. A repetition begins one load further, which changes
// no sum, and keeps a compiler from taking the loads out of the loop.
#version 450

layout(local_size_x_id = 0) in;
layout(std430, binding = 0) readonly buffer Data { uvec4 data[]; };
layout(std430, binding = 1) writeonly buffer Results { uvec4 results[]; };
layout(push_constant) uniform Push { uint repetitions; uint part; };  // part: a power of 2, of loads

const uint LOADS = 8;  // in an iteration, so that the loop itself costs little beside them

void main() {
    const uint begin = gl_WorkGroupID.x * part;
    uvec4 sums[LOADS];
    for (uint i = 0; i < LOADS; ++i) sums[i] = uvec4(0);
    for (uint repetition = 0; repetition < repetitions; ++repetition)
        for (uint at = gl_LocalInvocationID.x; at < part; at += LOADS * gl_WorkGroupSize.x)
            for (uint i = 0; i < LOADS; ++i)
                sums[i] += data[begin + ((at + i * gl_WorkGroupSize.x + repetition) & (part - 1))];
    uvec4 sum = uvec4(0);
    for (uint i = 0; i < LOADS; ++i) sum += sums[i];
    results[gl_GlobalInvocationID.x] = sum;
}
