// Copies items of 1, 2, 4 or 8 bytes without changing a bit. Their buffers are uints.
//   COPY_ITEM(target, to, source, from)
// Items below 4 bytes share a word, and strides may put any two of them into one. So atomics store each and touch only its own
// bits: no two invocations race, and gaps between items stay as they are.
#define STORED uint
layout(constant_id = 2) const uint ITEM_BYTES = 4;
const uint ITEMS_OF_WORD = ITEM_BYTES < 4 ? 4 / ITEM_BYTES : 1, ITEM_BITS = 32 / ITEMS_OF_WORD;
const uint ITEM_MASK = ITEM_BYTES == 1 ? 0xFFu : 0xFFFFu;

#define COPY_ITEM(target, to, source, from) { \
    if (ITEM_BYTES == 4) target[to] = source[from]; \
    if (ITEM_BYTES == 8) { target[2 * (to)] = source[2 * (from)]; target[2 * (to) + 1] = source[2 * (from) + 1]; } \
    if (ITEM_BYTES < 4) { \
        uint bits = source[(from) / ITEMS_OF_WORD] >> (from) % ITEMS_OF_WORD * ITEM_BITS & ITEM_MASK; \
        uint shift = (to) % ITEMS_OF_WORD * ITEM_BITS; \
        atomicAnd(target[(to) / ITEMS_OF_WORD], ~(ITEM_MASK << shift)); \
        atomicOr(target[(to) / ITEMS_OF_WORD], bits << shift); \
    } }
