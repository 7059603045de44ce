// Reads of a buffer: each workgroup reads its own part repeatedly. Each repetition begins one load later. That does not change
// the sum, but keeps a compiler from moving the loads out of the loop.
#version 450

layout(constant_id = 0) const uint WORKGROUP = 1;
layout(local_size_x_id = 0) in;
layout(std430, binding = 0) readonly buffer Data { uvec4 data[]; };
layout(std430, binding = 1) writeonly buffer Results { uvec4 results[]; };
layout(push_constant) uniform Push { uint repetitions; uint part; };  // part: a number of loads, a power of 2

const uint LOADS = 8;  // in an iteration, so that the cost of the loop itself is small

void main() {
    const uint begin = gl_WorkGroupID.x * part;
    uvec4 sums[LOADS];
    for (uint i = 0; i < LOADS; ++i) sums[i] = uvec4(0);
    for (uint repetition = 0; repetition < repetitions; ++repetition)
        for (uint at = gl_LocalInvocationID.x; at < part; at += LOADS * WORKGROUP)
            for (uint i = 0; i < LOADS; ++i)
                sums[i] += data[begin + ((at + i * WORKGROUP + repetition) & (part - 1))];
    uvec4 sum = uvec4(0);
    for (uint i = 0; i < LOADS; ++i) sum += sums[i];
    results[gl_GlobalInvocationID.x] = sum;
}
