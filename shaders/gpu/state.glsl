// A tile's state in shared memory: SLOTS vectors a row, row after row. Between dispatches it is in a buffer.
layout(binding = 8) buffer State { float state[]; };
shared vec4 partial_sums[GATES > 1 ? SUM_VECS : 1];
const uint SLOT_WORDS = ROWS * HIDDEN_VECS * 4;
shared float shared_state[SLOTS * SLOT_WORDS];
uint tile_state;  // where the tile's state starts in the buffer

uint place_in_tile(uint slot, uint r, uint of_unit) { return slot * SLOT_WORDS + r * HIDDEN_VECS * 4 + of_unit; }
bool in_shared(uint slot) { return true; }
float load_state(uint slot, uint r, uint of_unit) { return shared_state[place_in_tile(slot, r, of_unit)]; }
void store_state(uint slot, uint r, uint of_unit, float value) { shared_state[place_in_tile(slot, r, of_unit)] = value; }

#define SUM_VEC(place) partial_sums[place]
#include "stored_sums.glsl"
void begin_sums() {}

vec4 source_vec(uint r, uint vec)
{
    uint i = place_in_tile(source, r, vec * 4);
    return vec4(shared_state[i], shared_state[i + 1], shared_state[i + 2], shared_state[i + 3]);
}

void fetch_state(uint slot, uint r, uint of_unit)
{
    uint i = place_in_tile(slot, r, of_unit);
    shared_state[i] = state[tile_state + i];
}

void keep_state(uint slot, uint r, uint of_unit)
{
    uint i = place_in_tile(slot, r, of_unit);
    state[tile_state + i] = shared_state[i];
}

void store_output(uint i, float value) { STORE_ELEMENT(output_sequence, i, value); }
