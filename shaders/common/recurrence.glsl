// What a cell's gate math needs of the loop around it. SLOTS vectors of H numbers are the state of a row: slots 0 and 1 hold h, of
// even and of odd steps. With two phases slot 0 is enough: in the phase that writes h, an invocation reads its own unit's only,
// and slot 1 is the cell's. So is OWN_SLOT, read only by the invocation that stored it.
layout(constant_id = 130) const uint SLOTS = 2;
layout(constant_id = 132) const uint PHASES = 1;  // of a step
layout(constant_id = 10) const uint HIDDEN_LOADS = 1;  // of weights for a row of h
const uint HIDDEN_VECS = HIDDEN_LOADS * VECS_PER_LOAD;
const uint OWN_SLOT = 2, CELL_SLOT = OWN_SLOT;
// Where an element is in a tensor of one state a row, of DirectML's dimensions {1, D, B, H}
#define PLACE_OF(name, row, unit) \
    (direction * dispatch.name##_stride_d + (row) * dispatch.name##_stride_b + (unit) * dispatch.name##_stride_h)
layout(constant_id = 59) const uint HAS_SEQUENCE = 0;  // has one more dimension, T
layout(constant_id = 64) const uint HAS_PEEPHOLE = 0;
layout(binding = 6) buffer OutputSequence { STORED output_sequence[]; };

uint direction;  // of this workgroup
real4 peephole;  // the current unit's weights; component g is gate g's

// A kernel defines where state is kept, and how outputs are stored
real load_state(uint slot, uint r, uint unit);
void store_state(uint slot, uint r, uint unit, real value);
void store_output(uint i, real value);  // in output_sequence
// A cell defines the gate math: the new h of a unit, from the input's part x and the recurrent part of its gates; and which slot R
// multiplies, for which gates (source_slot, first_gate, end_gate)
real cell_phase(uint phase, uint r, uint unit, uint slot_of_h, real4 x, real4 recurrent);
