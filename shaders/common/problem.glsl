// Declares a kernel's specialization constants and a dispatch's push constants, which the host passes by name. No constant
// depends on T or B, so that one kernel serves all lengths and batches. Strides count elements.
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 0) const uint WORKGROUP = 1;   // invocations of a workgroup
layout(constant_id = 2) const uint ROWS = 1;        // batch rows of a tile, which share each loaded weight
layout(constant_id = 6) const uint HIDDEN = 1;      // H
layout(constant_id = 7) const uint DIRECTIONS = 1;
layout(constant_id = 8) const uint GATES = 1;
layout(constant_id = 11) const uint UNITS = 1;      // H rounded up to whole workgroups
layout(constant_id = 12) const uint REVERSE = 0;    // bit d is set if direction d runs backwards, from a row's last valid step
layout(constant_id = 13) const uint HAS_LENGTHS = 0;
layout(constant_id = 66) const uint PART_UNITS = 1;  // units that a workgroup computes

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
// A dispatch runs the steps [first_step, last_step), or in *stepped* one phase of one step; with last_step = 0 it only writes
// the initial state. `gates` starts with the step gates_step. steps is T, batch is B, and tiles counts the tiles of the batch.
layout(push_constant) uniform Dispatch {
    uint first_step; uint last_step; uint phase; uint gates_step; uint steps; uint batch; uint tiles;
    uint last_slot;
    uint lengths_stride_b;
    uint input_stride_t; uint input_stride_b; uint input_stride_i;
    uint initial_h_stride_d; uint initial_h_stride_b; uint initial_h_stride_h;
    uint sequence_stride_t; uint sequence_stride_d; uint sequence_stride_b; uint sequence_stride_h;
    uint single_stride_d; uint single_stride_b; uint single_stride_h;
    uint initial_c_stride_d; uint initial_c_stride_b; uint initial_c_stride_h;
    uint cell_single_stride_d; uint cell_single_stride_b; uint cell_single_stride_h;
    uint saved_stride_t; uint saved_stride_d; uint saved_stride_b; uint saved_stride_h;
} dispatch;
layout(binding = 4) readonly buffer SequenceLengths { uint lengths[]; };

// Returns a row's number of steps, 0 past the batch. The host checks lengths that it wrote; this bounds those that a device
// wrote.
uint row_length(uint row)
{
    if (row >= dispatch.batch) return 0;
    return HAS_LENGTHS != 0 ? min(lengths[row * dispatch.lengths_stride_b], dispatch.steps) : dispatch.steps;
}

// Returns the time step of X and Y that a row with `length` valid steps processes at `step`.
uint time_at(uint direction, uint step, uint length)
{
    bool reverse = ((REVERSE >> direction) & 1) != 0;
    return reverse ? length - 1 - step : step;
}
