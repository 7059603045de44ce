// Keeps a tile's state in a buffer, for invocations that hold units: [slot][row][vec].
const uint TILE_VECS = SLOTS * ROWS * HIDDEN_VECS;
#define STATE_VEC(slot, row, vec) (((slot) * ROWS + (row)) * HIDDEN_VECS + (vec))
layout(binding = 8) coherent buffer State { vec4 state_vecs[]; };
layout(binding = 8) coherent buffer StateFloats { float state_floats[]; };
uint tile_state;  // where the tile's state starts in the buffer, in vec4s

uint state_place(uint slot, uint row, uint unit) { return whole((tile_state + STATE_VEC(slot, row, unit / 4)) * 4 + unit % 4); }
vec4 load_state_vec(uint slot, uint row, uint vec) { return state_vecs[whole(tile_state + STATE_VEC(slot, row, vec))]; }
float load_state(uint slot, uint row, uint unit) { return state_floats[state_place(slot, row, unit)]; }
void store_state(uint slot, uint row, uint unit, float value) { state_floats[state_place(slot, row, unit)] = value; }

bool in_shared(uint slot) { return false; }
void fetch_state(uint slot, uint row, uint unit) {}
void keep_state(uint slot, uint row, uint unit) {}
