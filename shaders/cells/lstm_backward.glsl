// The gradient of an LSTM step (cells/lstm.glsl). x has the arguments of the gates i o f c. The state is the gradient of c'.
// The words are the gradients of those arguments, in their order.
#include "../common/backward.glsl"

float cell_phase(uint phase, uint r, uint unit, uint slot_of_h, vec4 x, vec4 recurrent)
{
    float i = activate(F, x[0]), o = activate(F, x[1]), f = activate(F, x[2]), g = activate(G, x[3]);
    float c_before = load_saved(1, unit), y = activate(H, f * c_before + i * g);
    float dh = load_saved(0, unit) + recurrent[0], dc = load_state(CELL_SLOT, r, unit) + dh * o * slope(H, y);
    store_state(CELL_SLOT, r, unit, dc * f);
    words[1] = dh * y * slope(F, o);
    words[2] = dc * c_before * slope(F, f);
    words[3] = dc * i * slope(G, g);
    return dc * g * slope(F, i);
}
