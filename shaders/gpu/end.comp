// Stores the last states of parts that exchange h. It is a dispatch of its own, because the fallback after persistent parts
// gave up needs the initial states, and a buffer may hold both. first_step and last_step are those of the last dispatch of the
// time loop: in *persistent*, only the vectors of that dispatch are there; otherwise a row's last h is in the slot of its length.
// Workgroups: x share the units of all directions and rows.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/store_STORAGE.glsl"
#include "../common/recurrence.glsl"
#include "state_layout.glsl"
layout(constant_id = 55) const uint HAS_SINGLE = 0;
layout(constant_id = 67) const uint SPINS = 0;  // not 0 after persistent parts, which may have given up
layout(constant_id = 154) const uint HAS_CELL_SINGLE = 0;
layout(binding = 7) buffer OutputSingle { STORED output_single[]; };
layout(binding = 8) readonly buffer State { float state[]; };
layout(binding = 10) buffer OutputCellSingle { STORED output_cell_single[]; };
layout(binding = 12) readonly buffer GaveUp { uint gave_up; };

void end_unit(uint i)
{
    uint row = i / HIDDEN % dispatch.batch, unit = i % HIDDEN;
    direction = i / HIDDEN / dispatch.batch;
    if (direction >= DIRECTIONS || SPINS != 0 && gave_up != 0) return;
    uint length = row_length(row);
    uint last = h_slot(IS_PERSISTENT != 0 ? clamp(length, dispatch.first_step, dispatch.last_step) : length);
    if (HAS_SINGLE != 0) {
        float h = length == 0 ? 0.0 : state[vector_start(OWN_VECTORS + last, direction, row) * 4 + unit];
        STORE_ELEMENT(output_single, PLACE_OF(single, row, unit), h);
    }
    if (HAS_CELL_SINGLE != 0) {
        float c = length == 0 ? 0.0 : state[vector_start(0, direction, row) * 4 + unit];
        STORE_ELEMENT(output_cell_single, PLACE_OF(cell_single, row, unit), c);
    }
}

void main()
{
    uint count = DIRECTIONS * dispatch.batch * HIDDEN, stride = gl_NumWorkGroups.x * WORKGROUP;
    [[dont_unroll]] for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) end_unit(i);
}
