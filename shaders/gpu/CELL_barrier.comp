// Persistent parts that meet at a barrier: a counter of arrivals
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

uint arrivals = 0;  // when all are there

void meet()
{
    uint counter = (1 + gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * MEETING_WORDS;
    arrivals += PARTS;
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        atomicAdd(meeting[counter], 1);
        begin_wait();
        [[dont_unroll]] while (atomicLoad(meeting[counter], gl_ScopeDevice, 0, gl_SemanticsRelaxed) < arrivals && spins < SPINS)
            count_look_in_vain();
    }
    barrier();
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
}
