// Converts a tensor between float32, float16 and bfloat16 (ONNX's Cast). Strides count elements.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common/numbers.glsl"
#include "common/elements.glsl"
#include "common/store_STORAGE.glsl"
#include "common/dimensions.glsl"
layout(constant_id = 2) const uint SOURCE = 0;  // the input's element type; ELEMENT is the output's
layout(push_constant) uniform Tensors {
    uint elements;
    uint size_0; uint size_1; uint size_2; uint size_3; uint size_4; uint size_5; uint size_6;
    uint input_stride_0; uint input_stride_1; uint input_stride_2; uint input_stride_3;
    uint input_stride_4; uint input_stride_5; uint input_stride_6; uint input_stride_7;
    uint output_stride_0; uint output_stride_1; uint output_stride_2; uint output_stride_3;
    uint output_stride_4; uint output_stride_5; uint output_stride_6; uint output_stride_7;
} tensors;
layout(binding = 0) buffer Input { uint elements[]; };
layout(binding = 1) buffer Output { STORED results[]; };

#define STEP(n, index) \
    source += index * tensors.input_stride_##n; \
    target += index * tensors.output_stride_##n;
#define DIMENSION(n) NEXT_INDEX(n) STEP(n, index)

void main()
{
    EACH_ELEMENT(element) {
        uint rest = element, source = 0, target = 0;
        EACH_INNER_DIMENSION(DIMENSION)
        STEP(7, rest)
        uint word = elements[source >> uint(SOURCE != FLOAT32)];
        float x = SOURCE == FLOAT32 ? uintBitsToFloat(word) : TWO_FLOATS(SOURCE, word)[source & 1];
        STORE_ELEMENT(results, target, x);
    }
}
