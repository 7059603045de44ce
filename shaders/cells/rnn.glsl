// The simple RNN's gate math (DML_OPERATOR_RNN, ONNX RNN): h' = f(x + h R), x with both biases.
const uint PHASES = 1;

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 1; }
uint source_slot(uint phase, uint h_slot) { return h_slot; }

float cell_phase(uint phase, uint row, uint unit, uint h_slot, vec4 x, vec4 r)
{
    return activate_f(clip(x[0] + r[0]));
}
