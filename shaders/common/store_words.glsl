// Stores elements in buffers of uints. Two 16-bit elements share a word, and strides may put any two of a tensor into one. So
// atomics store each and touch only its own bits: no two invocations race, and gaps between elements stay as they are.
#define STORED uint
#define STORE_ELEMENT(buffer, i, value) { \
    if (ELEMENT == FLOAT32) buffer[i] = floatBitsToUint(value); \
    else { \
        uint place = i, shift = (place & 1) * 16; \
        atomicAnd(buffer[place >> 1], ~(0xFFFFu << shift)); \
        atomicOr(buffer[place >> 1], sixteen_bits(value) << shift); \
    } }
