// Packs a weight tensor for the kernels: weights along the columns, units side by side, zero past COLUMNS and HIDDEN:
//   [direction][unit / TOGETHER][load][gate][unit % TOGETHER],
//   or, BY_UNITS, [direction][load / TOGETHER][unit][gate][load % TOGETHER];
// then [direction][unit] biases, 4 numbers with a gate each, then, with PEEPHOLES, [direction][unit] peephole weights
// likewise. Strides count elements. The input's pack takes the sum of both biases, except for the gates in SPLIT_BIAS, whose
// recurrent bias goes to the recurrent pack (IS_RECURRENT).
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 0) const uint WORKGROUP = 1;
layout(constant_id = 1) const uint DIRECTIONS = 1;
layout(constant_id = 2) const uint GATES = 1;
layout(constant_id = 3) const uint HIDDEN = 1;
layout(constant_id = 4) const uint UNITS = 1;         // HIDDEN rounded up to whole workgroups of the kernels that read
layout(constant_id = 5) const uint COLUMNS = 1;
layout(constant_id = 6) const uint COLUMN_LOADS = 1;
layout(constant_id = 7) const uint HAS_BIAS = 0;
layout(constant_id = 8) const uint IS_RECURRENT = 0;
layout(constant_id = 9) const uint SPLIT_BIAS = 0;    // bit g: gate g's recurrent bias stays apart
layout(constant_id = 10) const uint WEIGHT_STRIDE_D = 0;
layout(constant_id = 11) const uint WEIGHT_STRIDE_ROW = 0;
layout(constant_id = 12) const uint WEIGHT_STRIDE_COLUMN = 0;
layout(constant_id = 13) const uint BIAS_STRIDE_D = 0;
layout(constant_id = 14) const uint BIAS_STRIDE_ROW = 0;
layout(constant_id = 15) const uint PEEPHOLES = 0;    // gates that have one, the first of them
layout(constant_id = 16) const uint PEEPHOLE_STRIDE_D = 0;
layout(constant_id = 17) const uint PEEPHOLE_STRIDE_ROW = 0;
layout(constant_id = 18) const uint BY_UNITS = 0;
layout(constant_id = 19) const uint TOGETHER = 1;     // divides UNITS, or, BY_UNITS, COLUMN_LOADS

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(binding = 0) readonly buffer Weights { uint weights[]; };
layout(binding = 1) readonly buffer Bias { uint bias[]; };
layout(binding = 2) readonly buffer Peephole { uint peephole[]; };
layout(binding = 3) writeonly buffer Packed { uvec4 packed[]; };

const uint LOAD_COLUMNS = VECS_PER_LOAD * 4;

// A number format defines how a load of weights, and 4 numbers behind them, are stored at place i
void store_load(uint i, real weights[LOAD_COLUMNS]);
void store_extra(uint i, real numbers[4]);
real add(real a, real b);

void pack_load(uint i)
{
    uint middle = BY_UNITS != 0 ? UNITS : COLUMN_LOADS;
    uint outer = i / (middle * GATES * TOGETHER) * TOGETHER + i % TOGETHER;
    uint inner = i / (GATES * TOGETHER) % middle;
    uint gate = i / TOGETHER % GATES;
    uint unit = BY_UNITS != 0 ? inner : outer % UNITS;
    uint load = BY_UNITS != 0 ? outer % COLUMN_LOADS : inner;
    uint direction = i / (UNITS * GATES * COLUMN_LOADS);
    uint row_start = direction * WEIGHT_STRIDE_D + (gate * HIDDEN + unit) * WEIGHT_STRIDE_ROW;
    real loaded[LOAD_COLUMNS];
    [[unroll]] for (uint c = 0; c < LOAD_COLUMNS; ++c) {
        uint column = load * LOAD_COLUMNS + c;
        loaded[c] = ZERO;
        if (unit < HIDDEN && column < COLUMNS) loaded[c] = LOAD_ELEMENT(weights, row_start + column * WEIGHT_STRIDE_COLUMN);
    }
    store_load(i, loaded);
}

// A gate's bias in this pack
real packed_bias(uint direction, uint unit, uint gate)
{
    uint place = direction * BIAS_STRIDE_D + (gate * HIDDEN + unit) * BIAS_STRIDE_ROW;
    real recurrent = LOAD_ELEMENT(bias, place + GATES * HIDDEN * BIAS_STRIDE_ROW);
    bool split = ((SPLIT_BIAS >> gate) & 1) != 0;
    if (IS_RECURRENT != 0) return split ? recurrent : ZERO;
    real input_bias = LOAD_ELEMENT(bias, place);
    return split ? input_bias : add(input_bias, recurrent);
}

void pack_extra(uint i, bool is_bias, uint direction, uint unit)
{
    real numbers[4];
    [[unroll]] for (uint gate = 0; gate < 4; ++gate) {
        numbers[gate] = ZERO;
        if (unit < HIDDEN && is_bias && HAS_BIAS != 0 && gate < GATES) numbers[gate] = packed_bias(direction, unit, gate);
        if (unit < HIDDEN && !is_bias && gate < PEEPHOLES)
            numbers[gate] = LOAD_ELEMENT(peephole, direction * PEEPHOLE_STRIDE_D
                                                   + (gate * HIDDEN + unit) * PEEPHOLE_STRIDE_ROW);
    }
    store_extra(i, numbers);
}

void main()
{
    uint load_count = DIRECTIONS * COLUMN_LOADS * GATES * UNITS;
    uint bias_end = load_count + DIRECTIONS * UNITS;
    uint count = bias_end + (PEEPHOLES != 0 ? DIRECTIONS * UNITS : 0);
    uint stride = gl_NumWorkGroups.x * WORKGROUP;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride)
        if (i < load_count) pack_load(i);
        else {
            uint extra = (i - load_count) % (DIRECTIONS * UNITS);
            pack_extra(i, i < bias_end, extra / UNITS, extra % UNITS);
        }
}
