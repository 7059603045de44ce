// Multiply-adds in registers. With factor 1 and integers below 2^24, results are exact: they show whether the driver ran all
// iterations.
#version 450

layout(constant_id = 0) const uint WORKGROUP = 1;
layout(local_size_x_id = 0) in;
layout(std430, binding = 0) writeonly buffer Results { vec4 results[]; };
layout(push_constant) uniform Push { uint iterations; uint factor; };

const uint ROUNDS = 8;  // over all chains in an iteration, so that the cost of the loop itself is negligible

void main() {
    vec4 chains[CHAINS];
    const vec4 multiplier = vec4(uintBitsToFloat(factor));
    const vec4 step = vec4(1, 2, 3, 4) * multiplier;  // no component is 0: a compiler could drop that addition
    for (uint i = 0; i < CHAINS; ++i) chains[i] = vec4(i);
    for (uint iteration = 0; iteration < iterations; ++iteration)
        for (uint round = 0; round < ROUNDS; ++round)
            for (uint i = 0; i < CHAINS; ++i) chains[i] = chains[i] * multiplier + step;
    vec4 sum = vec4(0);
    for (uint i = 0; i < CHAINS; ++i) sum += chains[i];
    results[gl_WorkGroupID.x * WORKGROUP + gl_LocalInvocationID.x] = sum;
}
