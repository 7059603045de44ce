// Prepares the state that parts exchange for a dispatch of the time loop. Before the first step it stores the initial states and
// zeros in the padding of H. In *persistent* it marks the words to come, and before a later chunk copies the last h of the chunk
// before to the first slot. Workgroups: x share the vec4s of all directions and rows, y the slots.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/store_words.glsl"
#include "../common/recurrence.glsl"
#include "state_layout.glsl"
layout(constant_id = 51) const uint HAS_INITIAL_H = 0;
layout(constant_id = 150) const uint HAS_INITIAL_C = 0;
layout(binding = 5) readonly buffer HiddenInit { uint initial_h[]; };
layout(binding = 8) buffer State { uvec4 state_vecs[]; };
layout(binding = 9) readonly buffer CellMemInit { uint initial_c[]; };

void begin_vec(uint i)
{
    uint of_direction = dispatch.batch * HIDDEN_VECS;
    bool is_first = dispatch.first_step == 0;
    if (i >= DIRECTIONS * of_direction) return;
    direction = i / of_direction;
    uint row = i % of_direction / HIDDEN_VECS, first = i % HIDDEN_VECS * 4, stride = DIRECTIONS * of_direction;
    uvec4 h = uvec4(0), c = uvec4(0), to_come = uvec4(0);
    [[unroll]] for (uint u = 0; u < 4; ++u)
        if (first + u < HIDDEN) {
            if (HAS_INITIAL_H != 0) h[u] = published(LOAD_ELEMENT(initial_h, PLACE_OF(initial_h, row, first + u)));
            if (HAS_INITIAL_C != 0) c[u] = floatBitsToUint(LOAD_ELEMENT(initial_c, PLACE_OF(initial_c, row, first + u)));
        }
    if (IS_PERSISTENT != 0)
        [[unroll]] for (uint u = 0; u < 4; ++u)
            if (first + u < SOURCES * HIDDEN) to_come[u] = NOT_THERE;
    // The workgroup that will reset the last slot copies it to the first one before that.
    uint start = OWN_VECTORS * stride + i, slots = gl_NumWorkGroups.y;
    bool has_first = gl_WorkGroupID.y == (is_first ? 0 : (dispatch.last_slot - 1) % slots);
    if (has_first && is_first && OWN_VECTORS != 0) state_vecs[i] = c;
    if (has_first) state_vecs[start] = is_first ? h : state_vecs[start + dispatch.last_slot * stride];
    for (uint slot = 1 + gl_WorkGroupID.y; slot < slot_count(); slot += slots) state_vecs[start + slot * stride] = to_come;
}

void main()
{
    uint count = DIRECTIONS * dispatch.batch * HIDDEN_VECS, stride = gl_NumWorkGroups.x * WORKGROUP;
    [[dont_unroll]] for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) begin_vec(i);
}
