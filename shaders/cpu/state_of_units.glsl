// State for invocations that hold units: [slot][row][vec]
const uint TILE_VECS = SLOTS * ROWS * HIDDEN_VECS;
#define STATE_VEC(slot, row, vec) (((slot) * ROWS + (row)) * HIDDEN_VECS + (vec))
#include "state_in_buffer.glsl"
