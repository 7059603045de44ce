// The LSTM has the state c beside h. Kernels that keep the whole state of their rows include this.
#include "../common/cell_state.glsl"
