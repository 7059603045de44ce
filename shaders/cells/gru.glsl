// The GRU (DML_OPERATOR_GRU, ONNX GRU), gates z r h:
//   z = f(x_z + h R_z)                the update gate
//   r = f(x_r + h R_r)                the reset gate
//   n = g(x_h + r * (h R_h + Rb_h))   the candidate, with linear_before_reset: a step has one phase
//   n = g(x_h + (r * h) R_h)          without: R_h multiplies r * h of all units, and so a step has two phases
//   h' = (1 - z) * n + z * h
// x_* are the input's parts with their biases, in x; recurrent has what R's gates of this phase gave.
const uint RESET_H_SLOT = 1;  // r * h, with two phases
const uint Z_SLOT = OWN_SLOT;

uint first_gate(uint phase) { return phase == 0 ? 0u : 2u; }
uint end_gate(uint phase) { return phase + 1 == PHASES ? 3u : 2u; }
uint source_slot(uint phase, uint h_slot) { return phase == 0 ? h_slot : RESET_H_SLOT; }

float cell_phase(uint phase, uint row, uint unit, uint h_slot, vec4 x, vec4 recurrent)
{
    float h = load_state(h_slot, row, unit);
    float z, r, n = recurrent[2];
    if (phase == 0) {
        z = activate(F, clip(x[0] + recurrent[0]));
        r = activate(F, clip(x[1] + recurrent[1]));
        n = r * n;
    } else {
        z = load_state(Z_SLOT, row, unit);
    }
    if (phase + 1 == PHASES) {
        n = activate(G, clip(x[2] + n));
        h = (1.0 - z) * n + z * h;  // h'
    } else {
        store_state(Z_SLOT, row, unit, z);
        store_state(RESET_H_SLOT, row, unit, r * h);
    }
    return h;
}

void begin_cell(bool first, uint r, uint row, uint unit) {}
void end_cell(bool last, uint r, uint row, uint unit) {}
