// The LSTM (DML_OPERATOR_LSTM, ONNX LSTM), gates i o f c, peephole weights P of i o f:
//   i = f(x_i + h R_i + P_i * c)      the input gate
//   f = f(x_f + h R_f + P_f * c)      the forget gate, or 1 - i with COUPLE_INPUT_FORGET
//   c' = f * c + i * g(x_c + h R_c)
//   o = f(x_o + h R_o + P_o * c')     the output gate; its peephole looks at the new cell state, as in ONNX
//   h' = o * h(c')
// x_* are the input's parts with their biases.
layout(constant_id = 140) const uint COUPLE_INPUT_FORGET = 0;

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 4; }
uint source_slot(uint phase, uint slot_of_h) { return slot_of_h; }

float gate_input(uint gate, vec4 x, vec4 recurrent, float c)
{
    float sum = x[gate] + recurrent[gate];
    if (HAS_PEEPHOLE != 0) sum += peephole[gate] * c;
    return clip(sum);
}

float cell_phase(uint phase, uint tile_row, uint unit, uint slot_of_h, vec4 x, vec4 recurrent)
{
    float c = load_state(CELL_SLOT, tile_row, unit);
    float i = activate(F, gate_input(0, x, recurrent, c));
    float f = 1.0 - i;
    if (COUPLE_INPUT_FORGET == 0) f = activate(F, gate_input(2, x, recurrent, c));
    c = f * c + i * activate(G, clip(x[3] + recurrent[3]));
    words[1] = c;  // stored behind h for the gradient, if WORDS is 2
    float o = activate(F, gate_input(1, x, recurrent, c));
    store_state(CELL_SLOT, tile_row, unit, c);
    return o * activate(H, c);
}
