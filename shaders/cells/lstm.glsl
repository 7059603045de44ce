// The LSTM's fused gate math (DML_OPERATOR_LSTM, ONNX LSTM), gates i o f c, peepholes i o f:
//   i = f(x_i + h R_i + P_i * c),  f = f(x_f + h R_f + P_f * c)  or, with COUPLE_INPUT_FORGET, f = 1 - i
//   c' = f * c + i * g(x_c + h R_c)
//   o = f(x_o + h R_o + P_o * c'),  h' = o * h(c')
// x_* are the input's parts with their biases. The output gate's peephole looks at the new cell state, as in ONNX.
layout(constant_id = 70) const uint COUPLE_INPUT_FORGET = 0;
const uint PHASES = 1;

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 4; }
uint source_slot(uint phase, uint h_slot) { return h_slot; }

// The one phase of a step for one unit of a row: the new h. x, r: the input's and the recurrent part of each gate.
float cell_phase(uint phase, uint row, uint unit, uint h_slot, vec4 x, vec4 r)
{
    float c = load_state(CELL_SLOT, row, unit);
    vec4 gate = x + r;
    if (HAS_PEEPHOLE != 0) {
        gate[0] += peephole[0] * c;
        gate[2] += peephole[2] * c;
    }
    float input_gate = activate_f(clip(gate[0]));
    float forget_gate = COUPLE_INPUT_FORGET != 0 ? 1.0 - input_gate : activate_f(clip(gate[2]));
    c = forget_gate * c + input_gate * activate_g(clip(gate[3]));
    store_state(CELL_SLOT, row, unit, c);
    if (HAS_PEEPHOLE != 0) gate[1] += peephole[1] * c;
    return activate_f(clip(gate[1])) * activate_h(c);
}
