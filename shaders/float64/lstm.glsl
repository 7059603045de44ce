// An LSTM in float64: the equations of cells/lstm.glsl, for pairs of floats.
// The code of an activation in pairs is long. So a loop with a pass for each gate holds it once.
#include "../common/cell_state.glsl"
layout(constant_id = 140) const uint COUPLE_INPUT_FORGET = 0;

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 4; }
uint source_slot(uint phase, uint slot_of_h) { return slot_of_h; }

real cell_phase(uint phase, uint tile_row, uint unit, uint slot_of_h, real4 x, real4 r)
{
    real c = load_state(CELL_SLOT, tile_row, unit), i, f, o, y;
    [[dont_unroll]] for (uint stage = 0; stage < 5; ++stage) {  // the gates i f c o, then h(c)
        uint k = stage == 1 ? 2u : (stage == 2 ? 3u : (stage == 3 ? 1u : 0u));
        real sum = add(component(x, k), component(r, k));
        if (HAS_PEEPHOLE != 0 && k != 3) sum = add(sum, multiply(component(peephole, k), c));
        y = activate(stage == 2 ? G : (stage == 4 ? H : F), stage == 4 ? c : clip(sum));
        if (stage == 0) i = y;
        if (stage == 1) f = COUPLE_INPUT_FORGET != 0 ? subtract(number(1.0), i) : y;
        if (stage == 2) c = add(multiply(f, c), multiply(i, y));
        if (stage == 3) o = y;
    }
    store_state(CELL_SLOT, tile_row, unit, c);
    return multiply(o, y);
}
