// A GRU in float64: the equations of cells/gru.glsl, for pairs of floats.
// The code of an activation in pairs is long. So a loop with a pass for each gate holds it once.

const uint RESET_H_SLOT = 1;  // holds r * h, in a GRU with two phases
const uint Z_SLOT = OWN_SLOT;

uint first_gate(uint phase) { return phase == 0 ? 0u : 2u; }
uint end_gate(uint phase) { return phase + 1 == PHASES ? 3u : 2u; }
uint source_slot(uint phase, uint slot_of_h) { return phase == 0 ? slot_of_h : RESET_H_SLOT; }

real cell_phase(uint phase, uint tile_row, uint unit, uint slot_of_h, real4 x, real4 r)
{
    real h = load_state(slot_of_h, tile_row, unit);
    real z, reset_h, gate, recurrent = component(r, 2);
    if (phase == 1) z = load_state(Z_SLOT, tile_row, unit);
    [[dont_unroll]] for (uint k = first_gate(phase); k < end_gate(phase); ++k) {
        gate = activate(k == 2 ? G : F, clip(add(component(x, k), k == 2 ? recurrent : component(r, k))));
        if (k == 0) z = gate;
        if (k == 1) {
            reset_h = multiply(gate, h);
            recurrent = multiply(gate, recurrent);
        }
    }
    if (phase + 1 == PHASES) return add(multiply(subtract(number(1.0), z), gate), multiply(z, h));
    store_state(Z_SLOT, tile_row, unit, z);
    store_state(RESET_H_SLOT, tile_row, unit, reset_h);
    return h;
}

void begin_cell(bool first, uint r, uint row, uint unit) {}
void end_cell(bool last, uint r, uint row, uint unit) {}
