// The LSTM's fused gate math (DML_OPERATOR_LSTM, ONNX LSTM), gates i o f c, peepholes i o f:
//   i = f(x_i + h R_i + P_i * c),  f = f(x_f + h R_f + P_f * c)  or, with COUPLE_INPUT_FORGET, f = 1 - i
//   c' = f * c + i * g(x_c + h R_c)
//   o = f(x_o + h R_o + P_o * c'),  h' = o * h(c')
// x_* are the input's parts with their biases. The output gate's peephole looks at the new cell state, as in ONNX.
layout(constant_id = 140) const uint COUPLE_INPUT_FORGET = 0;
const uint PHASES = 1;

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 4; }
uint source_slot(uint phase, uint h_slot) { return h_slot; }

real with_peephole(uint gate, real x, real c)
{
    return HAS_PEEPHOLE != 0 ? add(x, multiply(component(peephole, gate), c)) : x;
}

// The one phase of a step for one unit of a row: the new h. x, r: the input's and the recurrent part of each gate.
real cell_phase(uint phase, uint row, uint unit, uint h_slot, real4 x, real4 r)
{
    real c = load_state(CELL_SLOT, row, unit);
    real i = with_peephole(0, add(component(x, 0), component(r, 0)), c);
    real f = with_peephole(2, add(component(x, 2), component(r, 2)), c);
    i = activate_f(clip(i));
    f = COUPLE_INPUT_FORGET != 0 ? subtract(number(1.0), i) : activate_f(clip(f));
    real g = activate_g(clip(add(component(x, 3), component(r, 3))));
    c = add(multiply(f, c), multiply(i, g));
    store_state(CELL_SLOT, row, unit, c);
    real o = with_peephole(1, add(component(x, 1), component(r, 1)), c);
    return multiply(activate_f(clip(o)), activate_h(c));
}
