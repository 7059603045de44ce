// The GRU's fused gate math (DML_OPERATOR_GRU, ONNX GRU), gates z r h:
//   z = f(x_z + h R_z),  r = f(x_r + h R_r)
//   n = g(x_h + (r * h) R_h), or, with one phase, n = g(x_h + r * (h R_h + Rb_h))
//   h' = (1 - z) * n + z * h
// x_* are the input's parts with their biases. Without linear_before_reset the candidate needs r of all units first: a
// step has two phases, the second of which multiplies R_h with r * h.
const uint RESET_H_SLOT = 1;  // with two phases, where h has one slot
const uint Z_SLOT = OWN_SLOT;

uint first_gate(uint phase) { return phase == 0 ? 0u : 2u; }
uint end_gate(uint phase) { return phase + 1 == PHASES ? 3u : 2u; }
uint source_slot(uint phase, uint h_slot) { return phase == 0 ? h_slot : RESET_H_SLOT; }

// The unit in hand: its h, and what the gates make of it
real h, z, reset_h, recurrent, gate;

void finish_gate(uint k, real4 x, real4 r)
{
    real sum = add(component(x, k), k == 2 ? recurrent : component(r, k));
    gate = activate(k == 2 ? G : F, clip(sum));
    if (k == 0) z = gate;
    if (k == 1) {
        reset_h = multiply(gate, h);
        recurrent = multiply(gate, recurrent);
    }
}

// One phase of one step for one unit of a row; the last phase returns the new h.
// x: the input's part of each gate; r: the recurrent part of the phase's gates.
real cell_phase(uint phase, uint row, uint unit, uint h_slot, real4 x, real4 r)
{
    h = load_state(h_slot, row, unit);
    recurrent = component(r, 2);
    if (phase == 1) z = load_state(Z_SLOT, row, unit);
    ACTIVATION_LOOP(k, 3, if (k >= first_gate(phase) && k < end_gate(phase)) finish_gate(k, x, r);)
    if (phase + 1 == PHASES) return add(multiply(subtract(number(1.0), z), gate), multiply(z, h));
    store_state(Z_SLOT, row, unit, z);
    store_state(RESET_H_SLOT, row, unit, reset_h);
    return h;
}
