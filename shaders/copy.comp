// Copies a tensor of any element type (ELEMENT_WISE_IDENTITY, SLICE, and each input of JOIN). Strides and starts count
// elements; a stride of the input may be negative.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common/dimensions.glsl"
#include "common/copy_STORAGE.glsl"
layout(push_constant) uniform Tensors {
    uint elements; uint input_start; uint output_start;
    uint size_0; uint size_1; uint size_2; uint size_3; uint size_4; uint size_5; uint size_6;
    uint input_stride_0; uint input_stride_1; uint input_stride_2; uint input_stride_3;
    uint input_stride_4; uint input_stride_5; uint input_stride_6; uint input_stride_7;
    uint output_stride_0; uint output_stride_1; uint output_stride_2; uint output_stride_3;
    uint output_stride_4; uint output_stride_5; uint output_stride_6; uint output_stride_7;
} tensors;
layout(binding = 0) buffer Input { STORED elements[]; };
layout(binding = 1) buffer Output { STORED results[]; };

#define DIMENSION(n) NEXT_INDEX(n) \
    source += index * tensors.input_stride_##n; \
    target += index * tensors.output_stride_##n;

void main()
{
    EACH_ELEMENT(element) {
        uint rest = element, source = tensors.input_start, target = tensors.output_start;
        EACH_INNER_DIMENSION(DIMENSION)
        source += rest * tensors.input_stride_7;
        target += rest * tensors.output_stride_7;
        COPY_ITEM(results, target, elements, source)
    }
}
