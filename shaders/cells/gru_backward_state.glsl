// The state is one number beside the gradients.
#include "../common/cell_state.glsl"
