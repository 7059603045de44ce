// Declares what connects a cell's gate math with the loop around it. A row's state is SLOTS vectors of H numbers. Slots 0 and 1
// hold h before even and before odd steps. A cell with two phases has h in slot 0 alone, because the phase that writes h reads
// only the h of its own unit, and uses slot 1 itself. OWN_SLOT is the cell's too: only the invocation that stored it reads it.
layout(constant_id = 130) const uint SLOTS = 2;
layout(constant_id = 132) const uint PHASES = 1;  // phases of a step
layout(constant_id = 10) const uint HIDDEN_LOADS = 1;  // loads of weights that a row of h is multiplied with
const uint HIDDEN_VECS = HIDDEN_LOADS * VECS_PER_LOAD;
const uint OWN_SLOT = 2, CELL_SLOT = OWN_SLOT;
// A unit has SOURCES numbers in the vector that R multiplies, HIDDEN apart: its h or, in a backward cell, a gradient for each
// gate. It stores WORDS numbers of each step in the output sequence, these first. The cell sets words[1] and later ones.
layout(constant_id = 160) const uint SOURCES = 1;
layout(constant_id = 161) const uint WORDS = 1;
real words[4];
uint time_now, row_now;  // the time step and batch row whose gate math runs
// The place of an element in a tensor with one state for each row, with DirectML's dimensions {1, D, B, H}
#define PLACE_OF(name, row, unit) \
    (direction * dispatch.name##_stride_d + (row) * dispatch.name##_stride_b + (unit) * dispatch.name##_stride_h)
layout(constant_id = 59) const uint HAS_SEQUENCE = 0;  // whether there is an output of all steps, which has T before these
layout(constant_id = 64) const uint HAS_PEEPHOLE = 0;
layout(binding = 6) buffer OutputSequence { STORED output_sequence[]; };

uint direction;  // the direction that this workgroup runs
real4 peephole;  // the peephole weights of the current unit; component g belongs to gate g

// A kernel defines these: where it keeps the state, and how it stores an element of output_sequence.
real load_state(uint slot, uint r, uint unit);
void store_state(uint slot, uint r, uint unit, real value);
void store_output(uint i, real value);
// A cell defines the gate math, which returns a unit's new h from the input's and the recurrent part of its gates; and
// source_slot, first_gate and end_gate: the slot that R multiplies in a phase, and for which gates.
real cell_phase(uint phase, uint r, uint unit, uint slot_of_h, real4 x, real4 recurrent);
