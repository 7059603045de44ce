// An RNN in float64: the equations of cells/rnn.glsl, for pairs of floats.

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 1; }
uint source_slot(uint phase, uint slot_of_h) { return slot_of_h; }

real cell_phase(uint phase, uint tile_row, uint unit, uint slot_of_h, real4 x, real4 r)
{
    return activate(F, clip(add(component(x, 0), component(r, 0))));
}

void begin_cell(bool first, uint r, uint row, uint unit) {}
void end_cell(bool last, uint r, uint row, uint unit) {}
