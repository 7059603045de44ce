// Copies elements of any type from the places along an axis that a tensor of indices names (GATHER). Each dimension of the
// output is one of the input's or of the indices'. An index out of range counts as the nearest in range, so none reads outside
// of the input.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common/dimensions.glsl"
#include "common/copy_STORAGE.glsl"
layout(constant_id = 3) const uint INDEX_WORDS = 1;  // words of an index: 2 for indices of 64 bits
layout(constant_id = 4) const uint IS_SIGNED = 0;    // whether indices are signed; negative ones count from the end
layout(push_constant) uniform Tensors {
    uint elements; uint axis_size; uint axis_stride;
    uint of_indices;  // bit n is set if dimension n is one of the indices'
    uint size_0; uint size_1; uint size_2; uint size_3; uint size_4; uint size_5; uint size_6;
    uint source_stride_0; uint source_stride_1; uint source_stride_2; uint source_stride_3;
    uint source_stride_4; uint source_stride_5; uint source_stride_6; uint source_stride_7;
    uint output_stride_0; uint output_stride_1; uint output_stride_2; uint output_stride_3;
    uint output_stride_4; uint output_stride_5; uint output_stride_6; uint output_stride_7;
} tensors;
layout(binding = 0) buffer Input { STORED elements[]; };
layout(binding = 1) buffer Indices { uint indices[]; };
layout(binding = 2) buffer Output { STORED results[]; };

// Returns the place along the axis that an index names. low and high are its words.
uint place_of(uint low, uint high)
{
    bool is_negative = IS_SIGNED != 0 && high >> 31 != 0;
    uint above_low = is_negative ? 0xFFFFFFFFu : 0;  // the upper word of a number that fits into the lower one
    bool is_small = INDEX_WORDS == 1 || high == above_low;
    uint last = tensors.axis_size - 1;
    if (is_negative) return is_small && low >= -tensors.axis_size ? low + tensors.axis_size : 0;
    return is_small ? min(low, last) : last;
}

#define STEP(n, index) \
    { \
        bool is_of_indices = (tensors.of_indices >> n & 1) != 0; \
        place += is_of_indices ? index * tensors.source_stride_##n : 0; \
        source += is_of_indices ? 0 : index * tensors.source_stride_##n; \
        target += index * tensors.output_stride_##n; \
    }
#define DIMENSION(n) NEXT_INDEX(n) STEP(n, index)

void main()
{
    EACH_ELEMENT(element) {
        uint rest = element, source = 0, place = 0, target = 0;
        EACH_INNER_DIMENSION(DIMENSION)
        STEP(7, rest)
        place *= INDEX_WORDS;
        source += place_of(indices[place], indices[place + INDEX_WORDS - 1]) * tensors.axis_stride;
        COPY_ITEM(results, target, elements, source)
    }
}
