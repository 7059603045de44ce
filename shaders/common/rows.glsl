// A tile's rows in the batch's order, and their lengths.
uint lengths_of_tile[ROWS];

uint row_of(uint r) { return first_row + r; }

uint length_of(uint r)
{
    if (HAS_LENGTHS != 0) return lengths_of_tile[r];
    return ROWS == 1 || first_row + r < dispatch.batch ? dispatch.steps : 0;
}

void begin_tile(out uint steps, out uint shortest)
{
    steps = 0;
    shortest = dispatch.steps;
    ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
        uint length = row_length(first_row + r);
        lengths_of_tile[r] = length;
        steps = max(steps, length);
        if (first_row + r < dispatch.batch) shortest = min(shortest, length);
    }
}
