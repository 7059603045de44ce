// The schedule *sequence*: a workgroup owns one direction of a tile of rows and runs all steps of the dispatch, TURN_UNITS
// units at once. Nothing passes between workgroups, so a dispatch needs no barrier but the workgroup's own.
// Workgroups: x tiles, y directions.
#version 450
#extension GL_GOOGLE_include_directive : require
#define ROW_LOOP [[dont_unroll]]
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/store_STORAGE.glsl"
#include "../common/time_loop.glsl"
#include "../common/activations.glsl"
#include "../cells/CELL_state.glsl"
#include "../cells/CELL.glsl"
#include "products.glsl"
#include "state.glsl"

void phase_barrier() { barrier(); }
bool has_phase(uint phase) { return true; }
bool is_end() { return dispatch.last_step == dispatch.steps; }

void run_turn(uint phase, uint step, uint first_of_turn)
{
    uint first = first_gate(phase), end = end_gate(phase);
    if (TURN_UNITS < HIDDEN) begin_units(first_of_turn);
    prefetch_weights(first, end);
    vec4 x[FINISHED];
    [[unroll]] for (uint i = 0; i < FINISHED; ++i) x[i] = input_part(step, first_row + column_group + i * COLUMN_GROUPS);
    float sums[SUMS];
    multiply_columns(sums, first, end);
    share_sums(sums, first, end);
    [[unroll]] for (uint i = 0; i < FINISHED; ++i) {
        uint r = column_group + i * COLUMN_GROUPS;
        if (r < ROWS && unit < HIDDEN && step < length_of(r))
            finish_phase(phase, step, r, unit, x[i], recurrent_part(r, first, end));
    }
    phase_barrier();
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    [[dont_unroll]] for (uint turn = 0; turn < HIDDEN; turn += TURN_UNITS) run_turn(phase, step, turn);
}

void run_step(uint step)
{
    run_phase(0, step);
    if (PHASES == 2) run_phase(1, step);
}

void main()
{
    direction = gl_WorkGroupID.y;
    first_row = gl_WorkGroupID.x * ROWS;
    tile_state = (direction * dispatch.tiles + gl_WorkGroupID.x) * SLOTS * SLOT_WORDS;
    first_unit = 0;
    end_unit = HIDDEN;
    begin_units(0);
    keep_weights(0, GATES);

    uint steps, shortest;
    begin_tile(steps, shortest);
    begin_state(dispatch.first_step == 0, 0, HIDDEN_VECS * 4);
    [[dont_unroll]] for (uint step = dispatch.first_step; step < min(dispatch.last_step, steps); ++step) run_step(step);
    end_rows(shortest);
}
