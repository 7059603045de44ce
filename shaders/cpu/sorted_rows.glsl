// Sorts a tile's rows by length, the longest first, so that the rows which still run are the first ones.
#define ACTIVE_ROWS (ROWS == 1 ? 1 : active_rows)
uint active_rows;  // how many of the first rows have the current step
uint lengths_of_tile[ROWS];
uint rows_of_tile[ROWS];
uint row_of(uint r) { return HAS_LENGTHS != 0 ? rows_of_tile[r] : first_row + r; }

uint length_of(uint r)
{
    if (HAS_LENGTHS != 0) return lengths_of_tile[r];
    return ROWS == 1 || first_row + r < dispatch.batch ? dispatch.steps : 0;
}

// Sorts the rows. Sets steps to the length of the longest row, and shortest to that of the shortest one in the batch.
void sort_rows(out uint steps, out uint shortest)
{
    steps = shortest = dispatch.steps;
    ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
        uint length = row_length(first_row + r);
        uint place = r;
        if (HAS_LENGTHS != 0) {
            place = 0;
            for (uint other = 0; other < ROWS; ++other) {
                uint its = row_length(first_row + other);
                if (its > length || (its == length && other < r)) ++place;
            }
            rows_of_tile[place] = first_row + r;
            if (place == 0) steps = length;
            if (first_row + r < dispatch.batch) shortest = min(shortest, length);
        }
        lengths_of_tile[place] = length;
    }
    active_rows = min(ROWS, dispatch.batch - first_row);
}

void drop_finished_rows(uint step)
{
    if (HAS_LENGTHS != 0)
        while (active_rows > 0 && lengths_of_tile[active_rows - 1] <= step) --active_rows;
}
