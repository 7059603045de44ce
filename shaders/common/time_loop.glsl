// The part that is common to time loops which keep the whole state of a tile: they load initial states, and store results.
#include "recurrence.glsl"
layout(constant_id = 51) const uint HAS_INITIAL_H = 0;
layout(constant_id = 55) const uint HAS_SINGLE = 0;
layout(binding = 5) readonly buffer HiddenInit { uint initial_h[]; };
layout(binding = 7) buffer OutputSingle { STORED output_single[]; };

uint first_row;              // the first batch row of this workgroup's tile
uint first_unit, end_unit;   // the units that this workgroup computes
uint source;                 // the slot that R multiplies in this phase

// A kernel defines these. row_of and length_of return which batch row is row r of the tile, and its number of steps. begin_tile
// runs before the loop, and sets the steps of the longest row, and of the shortest that is in the batch.
uint row_of(uint r);
uint length_of(uint r);
void begin_tile(out uint steps, out uint shortest);
// fetch_state copies state from the buffer to its place during a dispatch, keep_state copies it back.
bool in_shared(uint slot);  // whether the slot is in shared memory, which is undefined when a dispatch begins
void fetch_state(uint slot, uint r, uint unit);
void keep_state(uint slot, uint r, uint unit);
void run_step(uint step);               // runs all phases that has_phase, with finish_phase for each unit of each row
// gpu/CELL.comp or parts.glsl defines main and these. phase_barrier makes all that a phase stored visible to the next one.
// has_phase and is_end return whether this dispatch runs a phase, and whether it stores the last states.
void phase_barrier();
bool has_phase(uint phase);
bool is_end();
// A cell defines these: they load its own state, and store it after the last step.
void begin_cell(bool first, uint r, uint row, uint unit);
void end_cell(bool last, uint r, uint row, uint unit);

uint h_slot(uint step) { return PHASES == 2 ? 0 : step & 1; }
uint slot_at(uint step, uint r) { return h_slot(min(step, length_of(r))); }  // the last h of a finished row stays in its slot

void store_sequence(uint time, uint r, uint unit, real h)
{
    if (HAS_SEQUENCE != 0) store_output(time * dispatch.sequence_stride_t + PLACE_OF(sequence, row_of(r), unit), h);
}

// Does the gate math of a phase for one unit of a row, and stores the results.
void finish_phase(uint phase, uint step, uint r, uint unit, real4 x, real4 recurrent)
{
    time_now = time_at(direction, step, length_of(r));
    row_now = row_of(r);
    real h = cell_phase(phase, r, unit, h_slot(step), x, recurrent);
    if (phase + 1 == PHASES) {
        store_state(h_slot(step + 1), r, unit, h);
        store_sequence(time_now, r, unit, h);
        if (WORDS > 1)
            [[unroll]] for (uint w = 1; w < WORDS; ++w) {
                if (w < SOURCES) store_state(h_slot(step + 1), r, w * HIDDEN + unit, words[w]);
                store_sequence(time_now, r, w * HIDDEN + unit, words[w]);
            }
    }
}

// Sets the state before dispatch.first_step of the units [start, end), with zeros in the padding of HIDDEN. Only this reads
// initial states, and only end_state stores last ones. The barrier at the end (in parts, the boundary between dispatches)
// orders these reads before those writes, so a last state may be bound to the buffer of the initial one.
void begin_state(bool first, uint start, uint end)
{
    for (uint unit = start + gl_LocalInvocationID.x; unit < end; unit += WORKGROUP)
        ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
            [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot)
                if (first || in_shared(slot)) store_state(slot, r, unit, ZERO);
            uint row = row_of(r);
            if (unit < SOURCES * HIDDEN && row < dispatch.batch) {
                if (!first) fetch_state(slot_at(dispatch.first_step, r), r, unit);
                else if (HAS_INITIAL_H != 0) store_state(0, r, unit, LOAD_ELEMENT(initial_h, PLACE_OF(initial_h, row, unit)));
                if (unit < HIDDEN) begin_cell(first, r, row, unit);
            }
        }
    phase_barrier();
}

// Stores zeros at a time step for the rows whose lengths it is past.
void clear_output(uint time)
{
    for (uint unit = first_unit + gl_LocalInvocationID.x; unit < end_unit; unit += WORKGROUP)
        ROW_LOOP for (uint r = 0; r < ROWS; ++r)
            if (row_of(r) < dispatch.batch && time >= length_of(r))
                [[unroll]] for (uint w = 0; w < WORDS; ++w) store_sequence(time, r, w * HIDDEN + unit, ZERO);
}

// Stores the outputs that have one state for each row (0 for a row without steps), or the state for the next dispatch. An
// invocation keeps the words that it fetched, as barriers order only shared memory.
void end_state()
{
    bool last = is_end();
    uint end = SOURCES > 1 && !last ? SOURCES * HIDDEN : end_unit;
    for (uint unit = first_unit + gl_LocalInvocationID.x; unit < end; unit += WORKGROUP)
        ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
            uint row = row_of(r);
            if (row < dispatch.batch) {
                if (!last) keep_state(slot_at(dispatch.last_step, r), r, unit);
                else if (HAS_SINGLE != 0) {
                    real h = length_of(r) == 0 ? ZERO : load_state(slot_at(dispatch.steps, r), r, unit);
                    STORE_ELEMENT(output_single, PLACE_OF(single, row, unit), h);
                }
                if (SOURCES == 1 || unit < HIDDEN) end_cell(last, r, row, unit);
            }
        }
}

void end_rows(uint shortest)
{
    if (HAS_SEQUENCE != 0 && HAS_LENGTHS != 0)
        for (uint time = max(dispatch.first_step, shortest); time < dispatch.last_step; ++time) clear_output(time);
    end_state();
}
