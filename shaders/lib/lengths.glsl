// Sequence lengths. Bind LENGTHS_BINDING before including.
layout(binding = LENGTHS_BINDING) readonly buffer SequenceLengths { uint lengths[]; };

// Rows past the batch (the last tile may have some) have no steps. The host refuses lengths above T where it can see
// them; what a device wrote is bounded here, so that no access leaves its tensor.
uint row_length(uint row)
{
    if (row >= BATCH) return 0;
    return HAS_LENGTHS != 0 ? min(lengths[row * LENGTHS_STRIDE_B], chunk.steps) : chunk.steps;
}
