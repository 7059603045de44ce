// State beside h, where a kernel keeps its rows' whole state: c.
#include "../common/cell_state.glsl"
