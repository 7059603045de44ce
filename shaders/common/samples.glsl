// A sample is one step of one batch row. A projection multiplies all samples of a chunk, step after step, or, if COUNTED, only
// those within the rows' lengths, row after row. Steps count from dispatch.first_step.
layout(constant_id = 50) const uint COUNTED = 0;
const uint NOWHERE = 0xFFFFFFFFu;  // marks a sample that does not exist

bool is_sample(uint step, uint row) { return row < dispatch.batch && step < dispatch.last_step - dispatch.first_step; }

uint steps_of(uint row) { return clamp(row_length(row), dispatch.first_step, dispatch.last_step) - dispatch.first_step; }

// Advances to the first sample at or after (row, step) that exists.
void skip_rows(inout uint step, inout uint row)
{
    for (uint steps; row < dispatch.batch && step >= (steps = steps_of(row)); ++row) step -= steps;
}

void find_sample(uint sample_, out uint step, out uint row)
{
    if (COUNTED != 0) {
        step = sample_;
        row = 0;
        skip_rows(step, row);
    } else {
        step = sample_ / dispatch.batch;
        row = sample_ % dispatch.batch;
    }
}

void next_sample(inout uint step, inout uint row)
{
    if (COUNTED != 0) {
        ++step;
        skip_rows(step, row);
    } else if (++row == dispatch.batch) {
        row = 0;
        ++step;
    }
}

// Returns whether a row has this step of the chunk, and sets where its X starts.
bool find_x(uint direction, uint step, uint row, out uint start)
{
    uint length = row_length(row);
    start = x_start_of(direction, dispatch.first_step + step, length, row);
    return dispatch.first_step + step < length;
}
