// The schedule *persistent*, whose parts meet at a barrier: a counter of arrivals.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/store_STORAGE.glsl"
#include "../common/recurrence.glsl"
#include "../common/activations.glsl"
#include "../cells/CELL.glsl"
#include "state_layout.glsl"
#include "products.glsl"
#include "exchange.glsl"
#include "fetch.glsl"
#include "part_step.glsl"
#include "meeting.glsl"

uint arrivals = 0;  // the count at which all parts have arrived

void device_fence() { memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease); }

// Waits for all parts of the group. A fence counts for the atomics of its own invocation only. So the first invocation releases
// all that the workgroup stored: the others' fences and the barrier hand it over, and all that it acquires goes back the same
// way.
void meet()
{
    uint counter = (1 + gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * MEETING_WORDS;
    arrivals += PARTS;
    device_fence();
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        device_fence();
        atomicAdd(meeting[counter], 1);
        begin_wait();
        [[dont_unroll]] while (atomicLoad(meeting[counter], gl_ScopeDevice, 0, gl_SemanticsRelaxed) < arrivals && spins < SPINS)
            count_look_in_vain();
        device_fence();
    }
    barrier();
    device_fence();
}
