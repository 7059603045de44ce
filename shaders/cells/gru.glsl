// The GRU (DML_OPERATOR_GRU, ONNX GRU), gates z r h:
//   z = f(x_z + h R_z)                the update gate
//   r = f(x_r + h R_r)                the reset gate
//   n = g(x_h + r * (h R_h + Rb_h))   the candidate, where linear_before_reset = 1: a step has one phase
//   n = g(x_h + (r * h) R_h)          where it is 0: R_h multiplies r * h of all units, so a step has two phases
//   h' = (1 - z) * n + z * h
// x[g] is the input's part of gate g with its bias. recurrent[g] is the product with R in this phase, for h with the bias Rb_h.
const uint RESET_H_SLOT = 1;  // holds r * h, in a GRU with two phases
const uint Z_SLOT = OWN_SLOT;

uint first_gate(uint phase) { return phase == 0 ? 0u : 2u; }
uint end_gate(uint phase) { return phase + 1 == PHASES ? 3u : 2u; }
uint source_slot(uint phase, uint slot_of_h) { return phase == 0 ? slot_of_h : RESET_H_SLOT; }

float cell_phase(uint phase, uint tile_row, uint unit, uint slot_of_h, vec4 x, vec4 recurrent)
{
    float h = load_state(slot_of_h, tile_row, unit);
    float z, r, recurrent_n = recurrent[2];
    if (phase == 0) {
        z = activate(F, clip(x[0] + recurrent[0]));
        r = activate(F, clip(x[1] + recurrent[1]));
        recurrent_n = r * recurrent_n;  // only a GRU with one phase uses this
    } else {
        z = load_state(Z_SLOT, tile_row, unit);
    }
    if (phase + 1 == PHASES) {
        float n = activate(G, clip(x[2] + recurrent_n));
        h = (1.0 - z) * n + z * h;  // h'
    } else {
        store_state(Z_SLOT, tile_row, unit, z);
        store_state(RESET_H_SLOT, tile_row, unit, r * h);
    }
    return h;  // the caller ignores it after the first of two phases
}

void begin_cell(bool first, uint r, uint row, uint unit) {}
void end_cell(bool last, uint r, uint row, uint unit) {}
