// The simple RNN's gate math (DML_OPERATOR_RNN, ONNX RNN): h' = f(x + h R), x with both biases.

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 1; }
uint source_slot(uint phase, uint h_slot) { return h_slot; }

real cell_phase(uint phase, uint row, uint unit, uint h_slot, real4 x, real4 r)
{
    return activate(F, clip(add(component(x, 0), component(r, 0))));
}
