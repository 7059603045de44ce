// The LSTM's fused gate math (DML_OPERATOR_LSTM, ONNX LSTM), gates i o f c, peepholes i o f:
//   i = f(x_i + h R_i + P_i * c),  f = f(x_f + h R_f + P_f * c)  or, with COUPLE_INPUT_FORGET, f = 1 - i
//   c' = f * c + i * g(x_c + h R_c)
//   o = f(x_o + h R_o + P_o * c'),  h' = o * h(c')
// x_* are the input's parts with their biases. The output gate's peephole looks at the new cell state, as in ONNX.
layout(constant_id = 140) const uint COUPLE_INPUT_FORGET = 0;

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 4; }
uint source_slot(uint phase, uint h_slot) { return h_slot; }

// The unit in hand: its cell state, its gates, and its new h
real c, i, f, o, h;

// Stages: the gates i f c o, then h(c)
void finish_stage(uint stage, real4 x, real4 r)
{
    uint k = stage == 1 ? 2u : (stage == 2 ? 3u : (stage == 3 ? 1u : 0u));
    real sum = add(component(x, k), component(r, k));
    if (HAS_PEEPHOLE != 0 && k != 3) sum = add(sum, multiply(component(peephole, k), c));
    real y = activate(stage == 2 ? G : (stage == 4 ? H : F), stage == 4 ? c : clip(sum));
    if (stage == 0) i = y;
    if (stage == 1) f = COUPLE_INPUT_FORGET != 0 ? subtract(number(1.0), i) : y;
    if (stage == 2) c = add(multiply(f, c), multiply(i, y));
    if (stage == 3) o = y;
    if (stage == 4) h = multiply(o, y);
}

// The one phase of a step for one unit of a row: the new h. x, r: the input's and the recurrent part of each gate.
real cell_phase(uint phase, uint row, uint unit, uint h_slot, real4 x, real4 r)
{
    c = load_state(CELL_SLOT, row, unit);
    ACTIVATION_LOOP(stage, 5, finish_stage(stage, x, r);)
    store_state(CELL_SLOT, row, unit, c);
    return h;
}
