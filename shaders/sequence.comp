// All time steps of a chunk in one dispatch. A workgroup owns one direction and ROWS batch rows from the first step to the
// last, so nothing passes between workgroups and no barrier between dispatches is needed.
// With FUSED it also computes the input's part of the gates (lib/dot_input.glsl) instead of reading it from
// input_projection's result: one dispatch less where there are few steps to share the loads of W.
// Workgroups: x over tiles of ROWS rows, y over directions.
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

uint direction;
#include "lib/activations.glsl"
#define X_BINDING 0
#include "lib/input.glsl"
layout(binding = X_BINDING) readonly buffer Gates { uvec4 gates[]; };  // instead of X, without FUSED
#define INPUT_WEIGHTS_BINDING 1
#define LENGTHS_BINDING 3
#include "lib/lengths.glsl"
layout(binding = 2) readonly buffer HiddenWeights { uvec4 hidden_weights[]; };
layout(binding = 4) readonly buffer HiddenInit { uint initial_h[]; };
layout(binding = 5) buffer OutputSequence { uint output_sequence[]; };
layout(binding = 6) buffer OutputSingle { uint output_single[]; };
#define STATE_BINDING 7
#include "lib/state.glsl"
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
uint lengths_of_tile[ROWS];
uint x_start[ROWS];
uint source;  // the state slot that dot_hidden multiplies

#include "lib/dot_input.glsl"
#define DOT_NAME dot_hidden
#define DOT_WEIGHTS hidden_weights
#define DOT_LOADS HIDDEN_LOADS
#define DOT_VECTOR(row, vec) load_state_vec(source, row, vec)
#include "lib/dot.glsl"

// What is packed behind the recurrent weights: biases that must stay apart from the input's (the host's table of cells
// says which; the others are 0), then peepholes
real4 hidden_extra(uint which, uint unit)
{
    uint i = DIRECTIONS * HIDDEN_LOADS * GATES * UNITS + (which * DIRECTIONS + direction) * UNITS + unit;
    return GET_REAL4(hidden_weights, i);
}

// The input's part of the gates (at least of the phase's) for a unit of every row
void load_gates(out real4 x[ROWS], uint phase, uint step, uint unit)
{
    if (FUSED != 0) {
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            uint length = lengths_of_tile[r];
            x_start[r] = (step < length ? position_at(direction, step, length) : 0) * INPUT_STRIDE_T
                       + min(first_row + r, BATCH - 1) * INPUT_STRIDE_B;
            x[r] = input_bias(direction, unit);
        }
        dot_input(x, direction * INPUT_LOADS * GATES * UNITS, first_gate(phase), end_gate(phase), unit);
    } else {
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            uint row = min(first_row + r, BATCH - 1);
            uint i = (((step - chunk.first_step) * DIRECTIONS + direction) * BATCH + row) * UNITS + unit;
            x[r] = GET_REAL4(gates, i);
        }
    }
}

void store_sequence(uint time, uint r, uint unit, real h)
{
    if (HAS_SEQUENCE == 0) return;
    uint i = time * SEQUENCE_STRIDE_T + direction * SEQUENCE_STRIDE_D + (first_row + r) * SEQUENCE_STRIDE_B
           + unit * SEQUENCE_STRIDE_H;
    STORE_ELEMENT(output_sequence, i, h);
}

// The cell's step for one unit of every row, from its input's and its recurrent part
void finish_phase(uint phase, uint step, uint unit, real4 x[ROWS], real4 recurrent[ROWS])
{
    uint h_slot = step & 1;
    ROW_LOOP for (uint r = 0; r < ROWS; ++r) {
        uint length = lengths_of_tile[r];
        real h;
        if (step < length) h = cell_phase(phase, r, unit, h_slot, x[r], recurrent[r]);
        else h = load_state(h_slot, r, unit);  // a finished row keeps its last state
        if (phase + 1 == PHASES) {
            store_state(h_slot ^ 1, r, unit, h);
            if (step < length) store_sequence(position_at(direction, step, length), r, unit, h);
        }
    }
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, step & 1);
    for (uint unit = gl_LocalInvocationID.x; unit < UNITS; unit += WORKGROUP) {
        real4 x[ROWS];
        load_gates(x, phase, step, unit);
        real4 recurrent[ROWS];
        real4 bias = hidden_extra(0, unit);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) recurrent[r] = bias;
        dot_hidden(recurrent, direction * HIDDEN_LOADS * GATES * UNITS, first_gate(phase), end_gate(phase), unit);
        if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1, unit);
        if (unit < HIDDEN) finish_phase(phase, step, unit, x, recurrent);
    }
    state_barrier();
}

// The state before the first step of this dispatch
void begin(uint steps)
{
    bool first = chunk.first_step == 0;
    uint h_slot = min(chunk.first_step, steps) & 1;
    for (uint unit = gl_LocalInvocationID.x; unit < HIDDEN_VECS * 4; unit += WORKGROUP) {
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            if (first || IN_SHARED)
                [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot) store_state(slot, r, unit, number(0.0));
            uint row = first_row + r;
            if (unit < HIDDEN && row < BATCH) {
                if (!first) fetch_state(h_slot, r, unit);
                else if (HAS_INITIAL_H != 0)
                    store_state(0, r, unit, LOAD_ELEMENT(initial_h, direction * INITIAL_H_STRIDE_D + row * INITIAL_H_STRIDE_B
                                                                    + unit * INITIAL_H_STRIDE_H));
#ifdef CELL_STATE
                begin_cell_state(first, r, row, unit);
#endif
            }
        }
    }
    state_barrier();
}

// Zeros at a time past some rows' lengths
void clear(uint time)
{
    for (uint unit = gl_LocalInvocationID.x; unit < HIDDEN; unit += WORKGROUP)
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            if (first_row + r < BATCH && time >= lengths_of_tile[r]) store_sequence(time, r, unit, number(0.0));
}

// The last valid step's state (0 for a row without steps), or what the next dispatch needs
void end(uint steps)
{
    uint h_slot = min(chunk.last_step, steps) & 1;
    for (uint unit = gl_LocalInvocationID.x; unit < HIDDEN; unit += WORKGROUP) {
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            uint row = first_row + r;
            if (row < BATCH) {
                if (chunk.last_step < STEPS) keep_state(h_slot, r, unit);
                else if (HAS_SINGLE != 0) {
                    real h = lengths_of_tile[r] == 0 ? number(0.0) : load_state(h_slot, r, unit);
                    uint i = direction * SINGLE_STRIDE_D + row * SINGLE_STRIDE_B + unit * SINGLE_STRIDE_H;
                    STORE_ELEMENT(output_single, i, h);
                }
#ifdef CELL_STATE
                end_cell_state(chunk.last_step == STEPS, lengths_of_tile[r] == 0, r, row, unit);
#endif
            }
        }
    }
}

void main()
{
    uint tiles = (BATCH + ROWS - 1) / ROWS;
    direction = gl_WorkGroupID.y;
    first_row = gl_WorkGroupID.x * ROWS;
    tile_state = (direction * tiles + gl_WorkGroupID.x) * SLOTS * ROWS * HIDDEN_VECS;

    uint steps = 0;
    uint shortest = STEPS;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        uint length = row_length(first_row + r);
        lengths_of_tile[r] = length;
        steps = max(steps, length);
        if (first_row + r < BATCH) shortest = min(shortest, length);
    }
    begin(steps);
    for (uint step = chunk.first_step; step < min(chunk.last_step, steps); ++step) {
#ifdef PAIRS  // whose code is long; in line once
        for (uint phase = 0; phase < PHASES; ++phase) run_phase(phase, step);
#else
        run_phase(0, step);
        if (PHASES == 2) run_phase(1, step);
#endif
    }
    if (HAS_SEQUENCE != 0 && HAS_LENGTHS != 0)
        for (uint time = max(chunk.first_step, shortest); time < chunk.last_step; ++time) clear(time);
    end(steps);
}
