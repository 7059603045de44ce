// Runs a phase of a step in a part: a workgroup that computes TURN_UNITS units of all rows of its group, tile after tile.

void finish_row(uint phase, uint step, uint i, uint r)
{
    bool is_last = phase + 1 == PHASES, runs = step < own_length[i];
    uint time = runs ? time_at(direction, step, own_length[i]) : step;
    float h = own_h[i];
    time_now = time;
    row_now = finished_row;
    if (runs) h = cell_phase(phase, i, unit, 0, x[i], recurrent_part(r, first_gate(phase), end_gate(phase)));
    else if (!is_last) publish(reset_h_slot(step), finished_row, h);  // because the other parts wait for every word
    if (!is_last) return;
    publish(h_slot(step + 1), finished_row, h);
    if (SOURCES > 1) publish_words(h_slot(step + 1), finished_row, runs);
    if (HAS_SEQUENCE != 0) store_output(time * dispatch.sequence_stride_t + PLACE_OF(sequence, finished_row, unit), runs ? h : 0.0);
    if (HAS_SEQUENCE != 0 && WORDS > 1)
        [[unroll]] for (uint w = 1; w < WORDS; ++w)
            store_output(time * dispatch.sequence_stride_t + PLACE_OF(sequence, finished_row, w * HIDDEN + unit),
                         runs ? words[w] : 0.0);
}

void run_tile(uint phase, uint step, uint first_row)
{
    uint first = first_gate(phase), end = end_gate(phase);
    prefetch_weights(first, end);
    load_own(step, first_row);
    if (FIRST_SUM < TILE_VECS) barrier();  // lets every invocation read the sums before they are overwritten
    fetch_tile(phase == 0 ? h_slot(step) : reset_h_slot(step), first_row);
    barrier();
    float sums[SUMS];
    multiply_columns(sums, first, end);
    share_sums(sums, first, end);
    finished_step = step;
    [[unroll]] for (uint i = 0; i < FINISHED; ++i) {
        finished_row = row_of_finished(first_row, i);
        uint r = finished_row - first_row;
        if (r < ROWS && finished_row < dispatch.batch && unit < HIDDEN) finish_row(phase, step, i, r);
    }
}

// The groups share the rows evenly, in whole tiles.
uint tiles_of_group() { return (dispatch.batch + dispatch.tiles * ROWS - 1) / (dispatch.tiles * ROWS); }
uint first_row_of_group() { return gl_WorkGroupID.x * tiles_of_group() * ROWS; }
uint end_row_of_group() { return min(first_row_of_group() + tiles_of_group() * ROWS, dispatch.batch); }

void run_phase(uint phase, uint step)
{
    [[dont_unroll]] for (uint row = first_row_of_group(); row < end_row_of_group(); row += ROWS) run_tile(phase, step, row);
}

void begin_part()
{
    direction = gl_WorkGroupID.y;
    begin_units(gl_WorkGroupID.z * TURN_UNITS);
}
