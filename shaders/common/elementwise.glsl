// One activation on every element of a tensor of up to 8 dimensions (DML_OPERATOR_ACTIVATION_*): the f of a single direction.
// Strides count elements.
layout(constant_id = 0) const uint WORKGROUP = 1;
layout(constant_id = 1) const uint ELEMENTS = 1;
layout(constant_id = 10) const uint SIZE_0 = 1;
layout(constant_id = 11) const uint SIZE_1 = 1;
layout(constant_id = 12) const uint SIZE_2 = 1;
layout(constant_id = 13) const uint SIZE_3 = 1;
layout(constant_id = 14) const uint SIZE_4 = 1;
layout(constant_id = 15) const uint SIZE_5 = 1;
layout(constant_id = 16) const uint SIZE_6 = 1;
layout(constant_id = 17) const uint SIZE_7 = 1;
layout(constant_id = 20) const uint INPUT_STRIDE_0 = 0;
layout(constant_id = 21) const uint INPUT_STRIDE_1 = 0;
layout(constant_id = 22) const uint INPUT_STRIDE_2 = 0;
layout(constant_id = 23) const uint INPUT_STRIDE_3 = 0;
layout(constant_id = 24) const uint INPUT_STRIDE_4 = 0;
layout(constant_id = 25) const uint INPUT_STRIDE_5 = 0;
layout(constant_id = 26) const uint INPUT_STRIDE_6 = 0;
layout(constant_id = 27) const uint INPUT_STRIDE_7 = 0;
layout(constant_id = 30) const uint OUTPUT_STRIDE_0 = 0;
layout(constant_id = 31) const uint OUTPUT_STRIDE_1 = 0;
layout(constant_id = 32) const uint OUTPUT_STRIDE_2 = 0;
layout(constant_id = 33) const uint OUTPUT_STRIDE_3 = 0;
layout(constant_id = 34) const uint OUTPUT_STRIDE_4 = 0;
layout(constant_id = 35) const uint OUTPUT_STRIDE_5 = 0;
layout(constant_id = 36) const uint OUTPUT_STRIDE_6 = 0;
layout(constant_id = 37) const uint OUTPUT_STRIDE_7 = 0;
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(binding = 0) buffer Input { uint elements[]; };
layout(binding = 1) buffer Output { uint results[]; };

void main()
{
    uint stride = gl_NumWorkGroups.x * WORKGROUP;
    for (uint element = gl_GlobalInvocationID.x; element < ELEMENTS; element += stride) {
        uint rest = element, source = 0, target = 0, index;
#define DIMENSION(n) \
        index = rest % SIZE_##n; \
        rest /= SIZE_##n; \
        source += index * INPUT_STRIDE_##n; \
        target += index * OUTPUT_STRIDE_##n;
        DIMENSION(7) DIMENSION(6) DIMENSION(5) DIMENSION(4) DIMENSION(3) DIMENSION(2) DIMENSION(1) DIMENSION(0)
        real x = LOAD_ELEMENT(elements, source);
        real y = activate(F, x);
        STORE_ELEMENT(results, target, y);
    }
}
