// What the recurrent kernels are specialized for. The host passes a dictionary with these names as keys (schedule.py)
// and reads their ids out of the SPIR-V. Strides count elements.
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 0) const uint WORKGROUP = 1;      // invocations in a workgroup
layout(constant_id = 2) const uint ROWS = 1;           // rows of a tile, which share each weight that is loaded
layout(constant_id = 1) const uint UNITS_AT_ONCE = 1;  // units that one invocation computes for each h or x it loads
layout(constant_id = 4) const uint BATCH = 1;
layout(constant_id = 5) const uint INPUTS = 1;         // input size, I
layout(constant_id = 6) const uint HIDDEN = 1;         // hidden size, H
layout(constant_id = 7) const uint DIRECTIONS = 1;
layout(constant_id = 8) const uint GATES = 1;
layout(constant_id = 9) const uint INPUT_LOADS = 1;    // loads of weights for a row of X (weights.glsl), whole blocks of LANES
layout(constant_id = 10) const uint HIDDEN_LOADS = 1;  // for a row of h, likewise
layout(constant_id = 11) const uint UNITS = 1;         // HIDDEN rounded up to whole tiles of workgroups
layout(constant_id = 12) const uint REVERSE = 0;       // bit d set: direction d runs from a row's last valid step to its first
layout(constant_id = 13) const uint HAS_LENGTHS = 0;
layout(constant_id = 14) const uint LENGTHS_STRIDE_B = 0;
layout(constant_id = 15) const uint INPUT_STRIDE_T = 0;
layout(constant_id = 16) const uint INPUT_STRIDE_B = 0;
layout(constant_id = 17) const uint INPUT_STRIDE_I = 0;

#include "real.glsl"
#include "elements.glsl"
#include "weights.glsl"
#include "lanes.glsl"
#if defined(ROW_LANES)
const uint TILE = ROWS / LANES;  // rows of an invocation (row_lanes.glsl)
#elif defined(RESIDENT)
#define TILE UNITS_AT_ONCE  // a macro (resident.glsl), as a constant would share the other's id and name
#else
const uint TILE = UNITS_AT_ONCE * ROWS;
#endif
const uint TILES = (BATCH + ROWS - 1) / ROWS;  // of the batch
layout(constant_id = 66) const uint PART_UNITS = 1;  // units of a workgroup, whole tiles of units
const uint HIDDEN_VECS = HIDDEN_LOADS * VECS_PER_LOAD;

// This dispatch runs the steps [first_step, last_step) of the time loop; stepped, one phase of a step.
// `gates` starts with gates_step. steps: the time dimension, T; not specialized, so that all T share a pipeline.
layout(push_constant) uniform Chunk { uint first_step; uint last_step; uint phase; uint gates_step; uint steps; } chunk;

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;

// The time position that a row of `length` valid steps works on at `step`.
uint position_at(uint direction, uint step, uint length)
{
    bool reverse = ((REVERSE >> direction) & 1) != 0;
    return reverse ? length - 1 - step : step;
}
