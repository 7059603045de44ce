// Workgroups meet as often as is asked for: each stores a word, waits until all have arrived, and looks at what its neighbour
// stored. Vulkan does not promise that they run at the same time, so waiting is bounded: who has waited too long says so.
#version 450
#extension GL_KHR_memory_scope_semantics : require

layout(constant_id = 0) const uint WORKGROUP = 1;
layout(local_size_x_id = 0) in;
layout(std430, binding = 0) volatile buffer Words { uint words[]; };
layout(push_constant) uniform Push { uint meetings; uint most_spins; };

const uint LINE = 16;  // so that words of different use are not in one line of the cache
const uint ARRIVED = 0, GAVE_UP = LINE, UNSEEN = 2 * LINE, STORED = 3 * LINE;  // all are 0 at first

void main() {
    const uint groups = gl_NumWorkGroups.x;
    const bool is_first = gl_LocalInvocationID.x == 0;
    uint spins = 0;
    for (uint meeting = 1; meeting <= meetings; ++meeting) {
        if (is_first) words[STORED + LINE * gl_WorkGroupID.x] = meeting;
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
        barrier();
        if (is_first) {
            atomicAdd(words[ARRIVED], 1);
            while (atomicLoad(words[ARRIVED], gl_ScopeDevice, 0, gl_SemanticsRelaxed) < meeting * groups && spins < most_spins) ++spins;
        }
        barrier();
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
        if (is_first && words[STORED + LINE * ((gl_WorkGroupID.x + 1) % groups)] < meeting) atomicAdd(words[UNSEEN], 1);
    }
    if (is_first && spins >= most_spins) atomicOr(words[GAVE_UP], 1);
}
