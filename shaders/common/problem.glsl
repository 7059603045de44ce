// The operator that a kernel is specialized for. The host passes these constants by their names. Strides count elements.
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 0) const uint WORKGROUP = 1;   // invocations of a workgroup
layout(constant_id = 2) const uint ROWS = 1;        // batch rows of a tile: they share each weight that is loaded
layout(constant_id = 4) const uint BATCH = 1;       // B
layout(constant_id = 6) const uint HIDDEN = 1;      // H
layout(constant_id = 7) const uint DIRECTIONS = 1;
layout(constant_id = 8) const uint GATES = 1;
layout(constant_id = 11) const uint UNITS = 1;      // H rounded up to whole workgroups
layout(constant_id = 12) const uint REVERSE = 0;    // bit d: direction d runs from a row's last valid step to its first
layout(constant_id = 13) const uint HAS_LENGTHS = 0;
layout(constant_id = 14) const uint LENGTHS_STRIDE_B = 0;
layout(constant_id = 66) const uint PART_UNITS = 1;  // units of a workgroup
const uint TILES = (BATCH + ROWS - 1) / ROWS;        // of the batch

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
// A dispatch runs the steps [first_step, last_step), or, stepped, one phase of one step; with last_step = 0 it only makes the
// state. `gates` starts with gates_step. steps is T.
layout(push_constant) uniform Chunk { uint first_step; uint last_step; uint phase; uint gates_step; uint steps; } chunk;
layout(binding = 4) readonly buffer SequenceLengths { uint lengths[]; };

// Rows past the batch have no steps. The host checks the lengths that it wrote; those that a device wrote are bounded here.
uint row_length(uint row)
{
    if (row >= BATCH) return 0;
    return HAS_LENGTHS != 0 ? min(lengths[row * LENGTHS_STRIDE_B], chunk.steps) : chunk.steps;
}

// The time that a row of `length` valid steps works on at `step`
uint time_at(uint direction, uint step, uint length)
{
    bool reverse = ((REVERSE >> direction) & 1) != 0;
    return reverse ? length - 1 - step : step;
}
