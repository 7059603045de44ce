// Packs a weight tensor for the kernels. A load has columns side by side, loads of neighbouring units lie side by side, and
// zeros pad the columns and units:
//   [direction][unit / together][load][gate][unit % together]
// The biases follow as [direction][unit], 4 numbers with one for each gate, and then the peephole weights likewise, if there
// are any. Strides count elements. The input's pack has the sum of both biases, except for the gates in split_bias, whose
// recurrent bias is in the recurrent pack (is_recurrent).
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 0) const uint WORKGROUP = 1;
// Sizes are push constants, so that one pipeline packs all weights of a type.
layout(push_constant) uniform Tensor {
    uint directions; uint gates; uint hidden; uint columns;
    uint units;         // hidden, rounded up to whole workgroups of the kernels that read the pack
    uint column_loads;
    uint together;      // units that lie side by side; it divides `units`
    uint is_recurrent;
    uint has_bias;
    uint split_bias;    // bit g is set if the recurrent bias of gate g stays apart
    uint peepholes;     // the number of gates with peephole weights; they are the first gates
    uint weight_stride_d; uint weight_stride_row; uint weight_stride_column;
    uint bias_stride_d; uint bias_stride_row;
    uint peephole_stride_d; uint peephole_stride_row;
} tensor;

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(binding = 0) readonly buffer Weights { uint weights[]; };
layout(binding = 1) readonly buffer Bias { uint bias[]; };
layout(binding = 2) readonly buffer Peephole { uint peephole[]; };
layout(binding = 3) writeonly buffer Packed { uvec4 packed[]; };

const uint LOAD_COLUMNS = VECS_PER_LOAD * 4;

// A number format defines these: they store a load of weights, or 4 of the numbers that follow the weights, at place i.
void store_load(uint i, real weights[LOAD_COLUMNS]);
void store_extra(uint i, real numbers[4]);
real add(real a, real b);

// A load's place in the pack. block: unit / together; within: unit % together
struct Place { uint block; uint load; uint gate; uint within; };

Place place_of(uint i)
{
    uint of_gates = i / tensor.together, of_loads = of_gates / tensor.gates, block = of_loads / tensor.column_loads;
    return Place(block, of_loads - block * tensor.column_loads, of_gates - of_loads * tensor.gates, i - of_gates * tensor.together);
}

// Moves a place on, with carries. Dividing for each load would take longer than packing it.
void advance(inout Place at, Place by)
{
    at.within += by.within;
    at.gate += by.gate;
    at.load += by.load;
    at.block += by.block;
    if (at.within >= tensor.together) { at.within -= tensor.together; ++at.gate; }
    if (at.gate >= tensor.gates) { at.gate -= tensor.gates; ++at.load; }
    if (at.load >= tensor.column_loads) { at.load -= tensor.column_loads; ++at.block; }
}

void pack_load(uint i, Place at, uint direction, uint block)
{
    uint unit = block * tensor.together + at.within;
    uint row_start = direction * tensor.weight_stride_d + (at.gate * tensor.hidden + unit) * tensor.weight_stride_row;
    real loaded[LOAD_COLUMNS];
    [[unroll]] for (uint c = 0; c < LOAD_COLUMNS; ++c) {
        uint column = at.load * LOAD_COLUMNS + c;
        loaded[c] = ZERO;
        if (unit < tensor.hidden && column < tensor.columns)
            loaded[c] = LOAD_ELEMENT(weights, row_start + column * tensor.weight_stride_column);
    }
    store_load(i, loaded);
}

// Returns the share of a gate's bias that belongs to this pack.
real packed_bias(uint direction, uint unit, uint gate)
{
    uint place = direction * tensor.bias_stride_d + (gate * tensor.hidden + unit) * tensor.bias_stride_row;
    real recurrent = LOAD_ELEMENT(bias, place + tensor.gates * tensor.hidden * tensor.bias_stride_row);
    bool split = ((tensor.split_bias >> gate) & 1) != 0;
    if (tensor.is_recurrent != 0) return split ? recurrent : ZERO;
    real input_bias = LOAD_ELEMENT(bias, place);
    return split ? input_bias : add(input_bias, recurrent);
}

real extra_of(bool is_bias, uint direction, uint unit, uint gate)
{
    if (unit < tensor.hidden && is_bias && tensor.has_bias != 0 && gate < tensor.gates) return packed_bias(direction, unit, gate);
    if (unit < tensor.hidden && !is_bias && gate < tensor.peepholes)
        return LOAD_ELEMENT(peephole, direction * tensor.peephole_stride_d
                                      + (gate * tensor.hidden + unit) * tensor.peephole_stride_row);
    return ZERO;
}

void pack_extra(uint i, bool is_bias, uint direction, uint unit)
{
    real numbers[4];
    [[dont_unroll]] for (uint gate = 0; gate < 4; ++gate) {  // a loop compiles faster, and loads of weights hide its cost
        real number = extra_of(is_bias, direction, unit, gate);
        [[unroll]] for (uint k = 0; k < 4; ++k)  // an array that a variable indexes would go to memory
            if (k == gate) numbers[k] = number;
    }
    store_extra(i, numbers);
}

void main()
{
    uint of_direction = tensor.units * tensor.column_loads * tensor.gates, load_count = tensor.directions * of_direction;
    uint blocks = tensor.units / tensor.together;  // the blocks of a direction
    // A workgroup packs loads that lie side by side, which suits caches.
    uint turns = (load_count + gl_NumWorkGroups.x * WORKGROUP - 1) / (gl_NumWorkGroups.x * WORKGROUP);
    uint first = gl_WorkGroupID.x * turns * WORKGROUP;
    Place at = place_of(first + gl_LocalInvocationID.x), by = place_of(WORKGROUP);
    for (uint i = first + gl_LocalInvocationID.x; i < min(first + turns * WORKGROUP, load_count); i += WORKGROUP) {
        pack_load(i, at, i < of_direction ? 0 : 1, i < of_direction ? at.block : at.block - blocks);
        advance(at, by);
    }
    uint of_extras = tensor.directions * tensor.units, bias_end = load_count + of_extras;
    uint count = bias_end + (tensor.peepholes != 0 ? of_extras : 0);
    for (uint i = load_count + gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * WORKGROUP) {
        uint extra = i < bias_end ? i - load_count : i - bias_end;
        bool is_second = extra >= tensor.units;  // whether it belongs to the second direction
        pack_extra(i, i < bias_end, is_second ? 1 : 0, is_second ? extra - tensor.units : extra);
    }
}
