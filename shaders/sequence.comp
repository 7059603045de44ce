// All time steps of a chunk in one dispatch. A workgroup owns one direction and ROWS batch rows from the first step to the
// last, so nothing passes between workgroups and no barrier between dispatches is needed. Or PARTS workgroups own the tile,
// each some of its units; then they meet at a barrier of their own, or a dispatch is one phase of one step. Of an only step
// with one phase they need nothing of each other: it is one dispatch, in which each has a state of its own.
// With FUSED it also computes the input's part of the gates (lib/dot_input.glsl) instead of reading it from
// input_projection's result: one dispatch less where there are few steps to share the loads of W.
// Workgroups: x over tiles of ROWS rows, y over directions, z over parts.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "lib/problem.glsl"
layout(constant_id = 50) const uint FUSED = 0;
layout(constant_id = 51) const uint HAS_INITIAL_H = 0;
layout(constant_id = 52) const uint HAS_SEQUENCE = 0;
layout(constant_id = 53) const uint HAS_SINGLE = 0;
layout(constant_id = 54) const uint INITIAL_H_STRIDE_D = 0;
layout(constant_id = 55) const uint INITIAL_H_STRIDE_B = 0;
layout(constant_id = 56) const uint INITIAL_H_STRIDE_H = 0;
layout(constant_id = 57) const uint SEQUENCE_STRIDE_T = 0;
layout(constant_id = 58) const uint SEQUENCE_STRIDE_D = 0;
layout(constant_id = 59) const uint SEQUENCE_STRIDE_B = 0;
layout(constant_id = 60) const uint SEQUENCE_STRIDE_H = 0;
layout(constant_id = 61) const uint SINGLE_STRIDE_D = 0;
layout(constant_id = 62) const uint SINGLE_STRIDE_B = 0;
layout(constant_id = 63) const uint SINGLE_STRIDE_H = 0;
layout(constant_id = 64) const uint HAS_PEEPHOLE = 0;
layout(constant_id = 65) const uint PARTS = 1;       // workgroups that share the units of a tile
layout(constant_id = 67) const uint SPINS = 0;       // bound on waiting for the other parts (lib/grid.glsl); 0: stepped
const bool STEPPED = PARTS > 1 && SPINS == 0;        // one dispatch for each phase of each step
layout(constant_id = 68) const uint OWN_STATES = 0;  // stepped, of an only step with one phase: each part has all of the state

uint direction;
uint first_unit, end_unit;  // of this part
#include "lib/activations.glsl"
#include "lib/masked.glsl"
#define X_BINDING 0
#define INPUT_WEIGHTS_BINDING 1
layout(binding = X_BINDING) readonly buffer Gates { uvec4 gates[]; };  // instead of X, without FUSED
#define LENGTHS_BINDING 3
#include "lib/lengths.glsl"
#include "lib/gates.glsl"
layout(binding = 2) readonly buffer HiddenWeights { uvec4 hidden_weights[]; };
layout(binding = 4) readonly buffer HiddenInit { uint initial_h[]; };
layout(binding = 5) buffer OutputSequence { uint output_sequence[]; };
layout(binding = 6) buffer OutputSingle { uint output_single[]; };
#define STATE_BINDING 7
#include "lib/state.glsl"
#include "lib/grid.glsl"
real4 peephole;  // the unit's, with HAS_PEEPHOLE

#if defined(CELL_GRU)
#include "cells/gru.glsl"
#elif defined(CELL_LSTM)
#include "lib/cell_state.glsl"
#include "cells/lstm.glsl"
#elif defined(CELL_RNN)
#include "cells/rnn.glsl"
#endif

uint first_row;
uint source;  // the state slot that a phase multiplies

#include "lib/ragged.glsl"

// What is packed behind the recurrent weights: biases that must stay apart from the input's (the host's table of cells
// says which; the others are 0), then peepholes
real4 hidden_extra(uint which, uint unit)
{
    uint i = DIRECTIONS * HIDDEN_LOADS * GATES * UNITS + (which * DIRECTIONS + direction) * UNITS + unit;
    return GET_REAL4(hidden_weights, whole(i));
}

#ifdef UNITS_IN_LANES
// Whether the two 16-bit elements of each word are those of units in lanes side by side: then one stores both, without atomics
const bool WHOLE_WORDS = ELEMENT != 0 && SEQUENCE_STRIDE_H == 1 && HIDDEN % 2 == 0
                      && (SEQUENCE_STRIDE_T | SEQUENCE_STRIDE_D | SEQUENCE_STRIDE_B) % 2 == 0;
#endif

void store_sequence(uint time, uint r, uint unit, real h)
{
    if (HAS_SEQUENCE == 0) return;
    uint i = time * SEQUENCE_STRIDE_T + direction * SEQUENCE_STRIDE_D + row_of(r) * SEQUENCE_STRIDE_B
           + unit * SEQUENCE_STRIDE_H;
#ifdef UNITS_IN_LANES
    if (WHOLE_WORDS) {
        uint word = half_of(h);
        word |= subgroupShuffle(word, LANE ^ 1) << 16;
        if (LANE % 2 == 0) output_sequence[whole(i) / 2] = word;
        return;
    }
#endif
    STORE_ELEMENT(output_sequence, whole(i), h);
}

// The cell's step for one unit of a row, from its input's and its recurrent part
void finish_phase(uint phase, uint step, uint unit, uint r, real4 x, real4 recurrent)
{
    real h = cell_phase(phase, r, unit, h_slot(step), x, recurrent);
    if (phase + 1 == PHASES) {
        store_state(h_slot(step + 1), r, unit, h);
        store_sequence(position_at(direction, step, length_of(r)), r, unit, h);
    }
}

#ifdef ROW_LANES
#include "lib/phase_of_rows.glsl"
#else
// The input's part of the gates, as input_projection left it
real4 load_gates(uint step, uint r, uint unit)
{
    uint row = min(row_of(r), BATCH - 1);
    return GET_REAL4(gates, gates_place(gates_start(step - chunk.gates_step, direction, row), unit));
}

#ifdef RESIDENT
#include "lib/phase_of_resident.glsl"
#else
#include "lib/phase_of_units.glsl"
#endif
#endif

// The state before the first step
void begin(bool first)
{
    // What pads the last vec4s belongs to the last part
    uint start = OWN_STATES != 0 ? 0 : first_unit;
    uint end = OWN_STATES != 0 || (first_unit < HIDDEN && end_unit == HIDDEN) ? HIDDEN_VECS * 4 : end_unit;
    for (uint unit = start + gl_LocalInvocationID.x; unit < end; unit += WORKGROUP) {
        ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
            [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot)
                if (first || in_shared(slot)) store_state(slot, r, unit, number(0.0));
            uint row = row_of(r);
            if (unit < HIDDEN && row < BATCH) {
                if (!first) fetch_state(slot_at(chunk.first_step, r), r, unit);
                else if (HAS_INITIAL_H != 0)
                    store_state(0, r, unit, LOAD_ELEMENT(initial_h, direction * INITIAL_H_STRIDE_D + row * INITIAL_H_STRIDE_B
                                                                    + unit * INITIAL_H_STRIDE_H));
#ifdef CELL_STATE
                begin_cell_state(first, r, row, unit);
#endif
            }
        }
    }
    phase_barrier();
}

// Zeros at a time past some rows' lengths
void clear(uint time)
{
    for (uint unit = first_unit + gl_LocalInvocationID.x; unit < end_unit; unit += WORKGROUP)
        ROW_LOOP for (uint r = 0; r < ROWS; ++r)
            if (row_of(r) < BATCH && time >= length_of(r)) store_sequence(time, r, unit, number(0.0));
}

// The last valid step's state (0 for a row without steps), or what the next dispatch needs
void end()
{
    for (uint unit = first_unit + gl_LocalInvocationID.x; unit < end_unit; unit += WORKGROUP) {
        ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
            uint row = row_of(r);
            if (row < BATCH) {
                if (chunk.last_step < chunk.steps) keep_state(slot_at(chunk.last_step, r), r, unit);
                else if (HAS_SINGLE != 0) {
                    real h = length_of(r) == 0 ? number(0.0) : load_state(slot_at(chunk.steps, r), r, unit);
                    uint i = direction * SINGLE_STRIDE_D + row * SINGLE_STRIDE_B + unit * SINGLE_STRIDE_H;
                    STORE_ELEMENT(output_single, i, h);
                }
#ifdef CELL_STATE
                end_cell_state(chunk.last_step == chunk.steps, length_of(r) == 0, r, row, unit);
#endif
            }
        }
    }
}

void main()
{
    direction = gl_WorkGroupID.y;
    first_row = gl_WorkGroupID.x * ROWS;
    uint tile = direction * TILES + gl_WorkGroupID.x;
    tile_state = (OWN_STATES != 0 ? tile * PARTS + gl_WorkGroupID.z : tile) * TILE_VECS;
    first_unit = gl_WorkGroupID.z * PART_UNITS;
    end_unit = min(first_unit + PART_UNITS, HIDDEN);
    if (!begin_grid(tile)) return;

    uint steps, shortest;
    begin_rows(steps, shortest);
#ifdef RESIDENT
    load_resident_weights();
#endif
    // Stepped, the state before the first step has a dispatch of its own, and so has each phase of a step
    bool stepped = STEPPED && OWN_STATES == 0;
    bool starts = stepped ? chunk.last_step == 0 : chunk.first_step == 0;
    if (!stepped || starts) begin(starts);
    for (uint step = chunk.first_step; step < min(chunk.last_step, steps) && !gave_up; ++step) {
        drop_finished_rows(step);
#if defined(PAIRS) || defined(ROW_LANES)  // whose code is long; in line once
        for (uint phase = 0; phase < PHASES; ++phase)
            ONCE_IF(!STEPPED || chunk.phase == phase) run_phase(phase, step);
#else
        if (!STEPPED || chunk.phase == 0) run_phase(0, step);
        if (PHASES == 2 && (!STEPPED || chunk.phase == 1)) run_phase(1, step);
#endif
    }
    if (stepped && (starts || chunk.phase + 1 < PHASES)) return;
    if (HAS_SEQUENCE != 0 && HAS_LENGTHS != 0)
        for (uint time = max(chunk.first_step, shortest); time < chunk.last_step; ++time) clear(time);
    end();
    end_grid();
}
