// Packs one weight tensor and its share of the biases, once per initialization:
//   [direction][unit / TOGETHER][load][gate][unit % TOGETHER] weights (lib/weights.glsl), or, BY_UNITS,
//   [direction][load / TOGETHER][unit][gate][load % TOGETHER], zero past COLUMNS and HIDDEN, then [direction][unit] biases, a gate
//   a component, then, with PEEPHOLES, [direction][unit] peepholes likewise. Strides count elements.
// The input's pack takes the sum of both biases, except for the gates in SPLIT_BIAS, whose recurrent bias goes to the
// recurrent pack (IS_RECURRENT).
#version 450
#extension GL_GOOGLE_include_directive : require
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
#include "lib/real.glsl"
#include "lib/elements.glsl"
#include "lib/weights.glsl"

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(binding = 0) readonly buffer Weights { uint weights[]; };
layout(binding = 1) readonly buffer Bias { uint bias[]; };
layout(binding = 2) readonly buffer Peephole { uint peephole[]; };
layout(binding = 3) writeonly buffer Packed { uvec4 packed[]; };

void pack_load(uint i)
{
    uint middle = BY_UNITS != 0 ? UNITS : COLUMN_LOADS;
    uint outer = i / (middle * GATES * TOGETHER) * TOGETHER + i % TOGETHER;
    uint inner = i / (GATES * TOGETHER) % middle;
    uint gate = i / TOGETHER % GATES;
    uint unit = BY_UNITS != 0 ? inner : outer % UNITS;
    uint load = BY_UNITS != 0 ? outer % COLUMN_LOADS : inner;
    uint first_column = load * VECS_PER_LOAD * 4;
    uint direction = i / (UNITS * GATES * COLUMN_LOADS);
    uint row_start = direction * WEIGHT_STRIDE_D + (gate * HIDDEN + unit) * WEIGHT_STRIDE_ROW;
    real4 w[VECS_PER_LOAD];
    [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec) {
        w[vec] = ZERO4;
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            uint column = first_column + vec * 4 + c;
            if (unit < HIDDEN && column < COLUMNS)
                set_component(w[vec], c, LOAD_ELEMENT(weights, row_start + column * WEIGHT_STRIDE_COLUMN));
        }
    }
    STORE_WEIGHTS(packed, i, w);
}

real4 packed_bias(uint direction, uint unit)
{
    real4 b = ZERO4;
    if (HAS_BIAS != 0)
        [[unroll]] for (uint gate = 0; gate < GATES; ++gate) {
            uint start = direction * BIAS_STRIDE_D + (gate * HIDDEN + unit) * BIAS_STRIDE_ROW;
            real recurrent = LOAD_ELEMENT(bias, start + GATES * HIDDEN * BIAS_STRIDE_ROW);
            bool split = ((SPLIT_BIAS >> gate) & 1) != 0;
            if (IS_RECURRENT == 0) {
                real input_bias = LOAD_ELEMENT(bias, start);
                set_component(b, gate, split ? input_bias : add(input_bias, recurrent));
            } else if (split) set_component(b, gate, recurrent);
        }
    return b;
}

real4 packed_peephole(uint direction, uint unit)
{
    real4 p = ZERO4;
    [[unroll]] for (uint gate = 0; gate < PEEPHOLES; ++gate)
        set_component(p, gate, LOAD_ELEMENT(peephole, direction * PEEPHOLE_STRIDE_D + (gate * HIDDEN + unit) * PEEPHOLE_STRIDE_ROW));
    return p;
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
            uint direction = extra / UNITS;
            uint unit = extra % UNITS;
            real4 value = ZERO4;
            if (unit < HIDDEN) value = i < bias_end ? packed_bias(direction, unit) : packed_peephole(direction, unit);
            SET_REAL4(packed, i, value);
        }
}
