// The simple RNN (DML_OPERATOR_RNN, ONNX RNN): h' = f(x + h R), where x is the input's part with both biases.

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 1; }
uint source_slot(uint phase, uint slot_of_h) { return slot_of_h; }

float cell_phase(uint phase, uint tile_row, uint unit, uint slot_of_h, vec4 x, vec4 recurrent)
{
    return activate(F, clip(x[0] + recurrent[0]));
}

void begin_cell(bool first, uint r, uint row, uint unit) {}
void end_cell(bool last, uint r, uint row, uint unit) {}
