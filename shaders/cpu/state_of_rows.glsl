// State for invocations that hold rows: [slot][vec][row], as a subgroup reads it; behind it, the sums between blocks
// (step_of_rows.glsl)
const uint TILE_VECS = SLOTS * ROWS * HIDDEN_VECS + GATES * LANES * HIDDEN_VECS * 4;
#define STATE_VEC(slot, row, vec) (((slot) * HIDDEN_VECS + (vec)) * ROWS + (row))
#include "state_in_buffer.glsl"
