// Applies one activation, the f of direction 0, to every element of a tensor of up to 8 dimensions (DML_OPERATOR_ACTIVATION_*).
// Strides count elements. The dimensions are push constants, the innermost first, but the outermost is always number 7: its
// index is the `rest` after all divisions. A tensor without gaps has only that one, so nothing is divided for it.
layout(constant_id = 0) const uint WORKGROUP = 1;
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(push_constant) uniform Tensors {
    uint elements; uint inner_dimensions;
    uint size_0; uint size_1; uint size_2; uint size_3; uint size_4; uint size_5; uint size_6;
    uint input_stride_0; uint input_stride_1; uint input_stride_2; uint input_stride_3;
    uint input_stride_4; uint input_stride_5; uint input_stride_6; uint input_stride_7;
    uint output_stride_0; uint output_stride_1; uint output_stride_2; uint output_stride_3;
    uint output_stride_4; uint output_stride_5; uint output_stride_6; uint output_stride_7;
} tensors;
layout(binding = 0) buffer Input { uint elements[]; };
layout(binding = 1) buffer Output { STORED results[]; };

void main()
{
    uint stride = gl_NumWorkGroups.x * WORKGROUP;
    for (uint element = gl_GlobalInvocationID.x; element < tensors.elements; element += stride) {
        uint rest = element, source = 0, target = 0, index;
        // Some drivers run both sides of an `if`, but they do skip a loop without iterations.
#define DIMENSION(n) \
        for (uint once = 0; once < uint(n < tensors.inner_dimensions); ++once) { \
            index = rest % tensors.size_##n; \
            rest /= tensors.size_##n; \
            source += index * tensors.input_stride_##n; \
            target += index * tensors.output_stride_##n; \
        }
        DIMENSION(0) DIMENSION(1) DIMENSION(2) DIMENSION(3) DIMENSION(4) DIMENSION(5) DIMENSION(6)
        real x = LOAD_ELEMENT(elements, source + rest * tensors.input_stride_7);
        real y = activate(F, x);
        STORE_ELEMENT(results, target + rest * tensors.output_stride_7, y);
    }
}
