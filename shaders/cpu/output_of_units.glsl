// If the two 16-bit elements of each word of y belong to neighbouring lanes, one of them stores both, without atomics.
layout(constant_id = 47) const uint WHOLE_WORDS = 0;

void store_output(uint i, float value)
{
    if (WHOLE_WORDS != 0) {
        uint word = sixteen_bits(value);
        word |= subgroupShuffle(word, LANE ^ 1) << 16;
        if (LANE % 2 == 0) output_sequence[whole(i) / 2] = word;
        return;
    }
    STORE_ELEMENT(output_sequence, whole(i), value);
}
