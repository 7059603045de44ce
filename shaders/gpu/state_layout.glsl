// The layout of the state that parts exchange, in a buffer: [vector][direction][row], vectors of HIDDEN_VECS vec4s. The first
// vector is the cell's own state, if it has one. Then come the slots, which all parts read: h, and with two phases r * h. In
// *persistent*, h has a slot for each step: slot s is the h before step first_step + s, and those of r * h follow. Otherwise
// there are three slots: h before even and before odd steps, and r * h.
layout(constant_id = 76) const uint IS_PERSISTENT = 0;
const uint OWN_VECTORS = SLOTS - 2;
const uint NOT_THERE = 0xFFFFFFFFu;  // marks a word that has not been stored yet

// Returns a number's bits, so that no NaN is NOT_THERE.
uint published(float value) { return min(floatBitsToUint(value), NOT_THERE - 1); }

uint steps_of_dispatch() { return dispatch.last_step - dispatch.first_step; }
uint h_slot(uint step) { return IS_PERSISTENT != 0 ? step - dispatch.first_step : step & 1; }
uint reset_h_slot(uint step) { return IS_PERSISTENT != 0 ? steps_of_dispatch() + 1 + step - dispatch.first_step : 2; }
uint slot_count() { return IS_PERSISTENT != 0 ? 1 + PHASES * steps_of_dispatch() : 1 + PHASES; }

// Returns where a vector starts, counted in vec4s.
uint vector_start(uint vector, uint of_direction, uint row)
{
    return ((vector * DIRECTIONS + of_direction) * dispatch.batch + row) * HIDDEN_VECS;
}
