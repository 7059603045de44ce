// A tile's rows in the batch's order, and their lengths.
shared uint lengths_of_tile[ROWS];

uint row_of(uint r) { return first_row + r; }

uint length_of(uint r)
{
    if (HAS_LENGTHS != 0) return lengths_of_tile[r];
    return ROWS == 1 || first_row + r < dispatch.batch ? dispatch.steps : 0;
}

void begin_tile(out uint steps, out uint shortest)
{
    if (HAS_LENGTHS != 0) {
        for (uint r = gl_LocalInvocationID.x; r < ROWS; r += WORKGROUP) lengths_of_tile[r] = row_length(first_row + r);
        barrier();
    }
    steps = 0;
    shortest = dispatch.steps;
    [[dont_unroll]] for (uint r = 0; r < ROWS; ++r) {
        steps = max(steps, length_of(r));
        if (first_row + r < dispatch.batch) shortest = min(shortest, length_of(r));
    }
}
