// The gradient of a GRU step with linear_before_reset (cells/gru.glsl). x has m = h R_h + Rb_h, the arguments of z and r, and
// the input's part of n. The state is the part of h's gradient that passes by the gates. The words are the gradients of what x
// has, in its order: R multiplies the first three.
#include "../common/backward.glsl"

float cell_phase(uint phase, uint r, uint unit, uint slot_of_h, vec4 x, vec4 recurrent)
{
    float z = activate(F, x[1]), reset = activate(F, x[2]), n = activate(G, x[3] + reset * x[0]);
    float dh = load_saved(0, unit) + recurrent[0] + load_state(CELL_SLOT, r, unit);
    float dn = dh * (1.0 - z) * slope(G, n);
    store_state(CELL_SLOT, r, unit, dh * z);
    words[1] = dh * (load_saved(1, unit) - n) * slope(F, z);
    words[2] = dn * x[0] * slope(F, reset);
    words[3] = dn;
    return dn * reset;
}
