// Whether the two 16-bit elements of each word of y are those of units in lanes side by side: then one stores both, without
// atomics
const bool WHOLE_WORDS = ELEMENT != FLOAT32 && SEQUENCE_STRIDE_H == 1 && HIDDEN % 2 == 0
                      && (SEQUENCE_STRIDE_T | SEQUENCE_STRIDE_D | SEQUENCE_STRIDE_B) % 2 == 0;

void store_output(uint i, float value)
{
    if (WHOLE_WORDS) {
        uint word = sixteen_bits(value);
        word |= subgroupShuffle(word, LANE ^ 1) << 16;
        if (LANE % 2 == 0) output_sequence[whole(i) / 2] = word;
        return;
    }
    STORE_ELEMENT(output_sequence, whole(i), value);
}
