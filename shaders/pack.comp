// Packs one weight tensor and its share of the biases, once per initialization:
//   [direction][vec][gate][unit] vec4 weights, zero past COLUMNS and HIDDEN, then [direction][unit] vec4 biases, a gate a
//   component, then, with PEEPHOLES, [direction][unit] vec4 peepholes likewise. Strides count elements.
// The input's pack takes the sum of both biases, except for the gates in SPLIT_BIAS, whose recurrent bias goes to the
// recurrent pack (IS_RECURRENT).
#version 450
layout(constant_id = 0) const uint WORKGROUP = 1;
layout(constant_id = 1) const uint DIRECTIONS = 1;
layout(constant_id = 2) const uint GATES = 1;
layout(constant_id = 3) const uint HIDDEN = 1;
layout(constant_id = 4) const uint UNITS = 1;         // HIDDEN rounded up to whole workgroups of the kernels that read
layout(constant_id = 5) const uint COLUMNS = 1;
layout(constant_id = 6) const uint COLUMN_VECS = 1;
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

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(binding = 0) readonly buffer Weights { float weights[]; };
layout(binding = 1) readonly buffer Bias { float bias[]; };
layout(binding = 2) readonly buffer Peephole { float peephole[]; };
layout(binding = 3) writeonly buffer Packed { vec4 packed[]; };

vec4 pack_weights(uint i)
{
    uint unit = i % UNITS;
    uint gate = i / UNITS % GATES;
    uint column = i / (UNITS * GATES) % COLUMN_VECS * 4;
    uint direction = i / (UNITS * GATES * COLUMN_VECS);
    vec4 w = vec4(0);
    if (unit < HIDDEN)
        for (uint c = 0; c < 4; ++c)
            if (column + c < COLUMNS)
                w[c] = weights[direction * WEIGHT_STRIDE_D + (gate * HIDDEN + unit) * WEIGHT_STRIDE_ROW
                               + (column + c) * WEIGHT_STRIDE_COLUMN];
    return w;
}

vec4 pack_bias(uint i)
{
    uint unit = i % UNITS;
    uint direction = i / UNITS;
    vec4 b = vec4(0);
    if (HAS_BIAS != 0 && unit < HIDDEN)
        for (uint gate = 0; gate < GATES; ++gate) {
            uint start = direction * BIAS_STRIDE_D + (gate * HIDDEN + unit) * BIAS_STRIDE_ROW;
            float recurrent = bias[start + GATES * HIDDEN * BIAS_STRIDE_ROW];
            bool split = ((SPLIT_BIAS >> gate) & 1) != 0;
            if (IS_RECURRENT != 0) b[gate] = split ? recurrent : 0.0;
            else b[gate] = bias[start] + (split ? 0.0 : recurrent);
        }
    return b;
}

vec4 pack_peephole(uint i)
{
    uint unit = i % UNITS;
    uint direction = i / UNITS;
    vec4 p = vec4(0);
    if (unit < HIDDEN)
        for (uint gate = 0; gate < PEEPHOLES; ++gate)
            p[gate] = peephole[direction * PEEPHOLE_STRIDE_D + (gate * HIDDEN + unit) * PEEPHOLE_STRIDE_ROW];
    return p;
}

void main()
{
    uint weight_count = DIRECTIONS * COLUMN_VECS * GATES * UNITS;
    uint bias_end = weight_count + DIRECTIONS * UNITS;
    uint count = bias_end + (PEEPHOLES != 0 ? DIRECTIONS * UNITS : 0);
    uint stride = gl_NumWorkGroups.x * WORKGROUP;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride)
        if (i < weight_count) packed[i] = pack_weights(i);
        else if (i < bias_end) packed[i] = pack_bias(i - weight_count);
        else packed[i] = pack_peephole(i - bias_end);
}
