// The gradient of a step of the simple RNN (cells/rnn.glsl): that of the activation's argument, x.
#include "../common/backward.glsl"

float cell_phase(uint phase, uint r, uint unit, uint slot_of_h, vec4 x, vec4 recurrent)
{
    return (load_saved(0, unit) + recurrent[0]) * slope(F, activate(F, x[0]));
}

void begin_cell(bool first, uint r, uint row, uint unit) {}
void end_cell(bool last, uint r, uint row, uint unit) {}
