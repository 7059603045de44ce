// Elements are stored in buffers of uints. Two 16-bit elements share a word, and strides may put any two of a tensor into one. So
// each is stored by atomics that touch its own bits only: no two invocations race, and gaps between elements keep what they hold.
#define STORED uint
#define STORE_ELEMENT(buffer, i, value) { \
    if (ELEMENT == FLOAT32) buffer[i] = floatBitsToUint(value); \
    else { \
        uint place = i, shift = (place & 1) * 16; \
        atomicAnd(buffer[place >> 1], ~(0xFFFFu << shift)); \
        atomicOr(buffer[place >> 1], sixteen_bits(value) << shift); \
    } }
