// Keeps a tile's state in shared memory, slot after slot, each row after row. Between dispatches it is in a buffer.
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

// The tile's rows are in the order of the batch.
shared uint lengths_of_tile[ROWS];

uint row_of(uint r) { return first_row + r; }

uint length_of(uint r)
{
    if (HAS_LENGTHS != 0) return lengths_of_tile[r];
    return ROWS == 1 || first_row + r < dispatch.batch ? dispatch.steps : 0;
}

void begin_tile(out uint steps, out uint shortest)
{
    if (HAS_LENGTHS != 0) {
        for (uint r = gl_LocalInvocationID.x; r < ROWS; r += WORKGROUP) lengths_of_tile[r] = row_length(first_row + r);
        barrier();
    }
    steps = 0;
    shortest = dispatch.steps;
    [[dont_unroll]] for (uint r = 0; r < ROWS; ++r) {
        steps = max(steps, length_of(r));
        if (first_row + r < dispatch.batch) shortest = min(shortest, length_of(r));
    }
}
