// Adds, subtracts or multiplies two tensors of float32 or float16, element by element, and applies an activation to the result
// (ELEMENT_WISE_ADD, ADD1, SUBTRACT, MULTIPLY). Strides count elements; a stride of 0 broadcasts an input.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common/numbers.glsl"
#include "common/elements.glsl"
#include "common/store_STORAGE.glsl"
const uint DIRECTIONS = 1, direction = 0;  // activations.glsl then takes the activation f of direction 0
#include "common/activations.glsl"
#include "common/dimensions.glsl"
layout(constant_id = 2) const uint SUBTRACTS = 0;
layout(constant_id = 3) const uint MULTIPLIES = 0;
layout(push_constant) uniform Tensors {
    uint elements;
    uint size_0; uint size_1; uint size_2; uint size_3; uint size_4; uint size_5; uint size_6;
    uint a_stride_0; uint a_stride_1; uint a_stride_2; uint a_stride_3;
    uint a_stride_4; uint a_stride_5; uint a_stride_6; uint a_stride_7;
    uint b_stride_0; uint b_stride_1; uint b_stride_2; uint b_stride_3;
    uint b_stride_4; uint b_stride_5; uint b_stride_6; uint b_stride_7;
    uint output_stride_0; uint output_stride_1; uint output_stride_2; uint output_stride_3;
    uint output_stride_4; uint output_stride_5; uint output_stride_6; uint output_stride_7;
} tensors;
layout(binding = 0) buffer A { uint a_elements[]; };
layout(binding = 1) buffer B { uint b_elements[]; };
layout(binding = 2) buffer Output { STORED results[]; };

#define STEP(n, index) \
    a_place += index * tensors.a_stride_##n; \
    b_place += index * tensors.b_stride_##n; \
    target += index * tensors.output_stride_##n;
#define DIMENSION(n) NEXT_INDEX(n) STEP(n, index)

void main()
{
    EACH_ELEMENT(element) {
        uint rest = element, a_place = 0, b_place = 0, target = 0;
        EACH_INNER_DIMENSION(DIMENSION)
        STEP(7, rest)
        float a = LOAD_ELEMENT(a_elements, a_place), b = LOAD_ELEMENT(b_elements, b_place), y = a + b;
        if (SUBTRACTS != 0) y = a - b;
        if (MULTIPLIES != 0) y = a * b;
        y = activate(F, y);
        STORE_ELEMENT(results, target, y);
    }
}
