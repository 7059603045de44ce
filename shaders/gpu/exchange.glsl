// Loads and stores the state that parts exchange. The vectors that R multiplies are in shared memory (TILE_VECS) if it has
// room. So are the sums, from FIRST_SUM on: behind the vectors, or, without room for both, in their place. An invocation loads
// the state of the rows that it finishes, numbered `i`, before their products.
#extension GL_KHR_memory_scope_semantics : require
layout(constant_id = 78) const uint TILE_VECS = 1;  // vec4s of the tile; 0 if its vectors stay in the buffer
layout(constant_id = 79) const uint FIRST_SUM = 1;
const uint TILE_END = FIRST_SUM + (GATES > 1 ? SUM_VECS : 0);
layout(binding = 8) coherent buffer State { uint state_words[]; };
layout(binding = 8) coherent buffer StateVecs { vec4 state_vecs[]; };
shared vec4 tile[TILE_END > TILE_VECS ? TILE_END : TILE_VECS];
const uint TILE_SIZE = ROWS * HIDDEN_VECS, FETCHES = (TILE_SIZE + WORKGROUP - 1) / WORKGROUP;  // vec4s for an invocation
vec4 x[FINISHED];
float own_h[FINISHED], own_cell[FINISHED];
uint own_length[FINISHED];
uint finished_row, finished_step;

uint source_slot_now, source_row;  // the slot and first row of a tile that stays in the buffer

// Returns the place of this unit's word in a vector, or past H of another's, because its own would be behind the buffer.
uint word_of(uint vector, uint row) { return vector_start(vector, direction, row) * 4 + min(unit, HIDDEN - 1); }

// Load and store this unit's word of a slot.
float load_word(uint slot, uint row) { return uintBitsToFloat(state_words[word_of(OWN_VECTORS + slot, row)]); }
void publish(uint slot, uint row, float value) { state_words[word_of(OWN_VECTORS + slot, row)] = published(value); }
// Publishes what else R multiplies: zeros for a row that has finished.
void publish_words(uint slot, uint row, bool runs)
{
    [[unroll]] for (uint w = 1; w < SOURCES; ++w)
        state_words[word_of(OWN_VECTORS + slot, row) + w * HIDDEN] = published(runs ? words[w] : 0.0);
}

float load_state(uint slot, uint i, uint of_unit) { return slot == OWN_SLOT ? own_cell[i] : own_h[i]; }

void store_state(uint slot, uint i, uint of_unit, float value)
{
    if (slot == OWN_SLOT) state_words[word_of(0, finished_row)] = floatBitsToUint(value);
    else publish(reset_h_slot(finished_step), finished_row, value);
}

void store_output(uint i, float value) { STORE_ELEMENT(output_sequence, i, value); }

uint row_of_finished(uint first_row, uint i) { return first_row + column_group + i * COLUMN_GROUPS; }

// Loads the state of the rows that this invocation finishes, without branches, so that all loads are under way at once.
void load_own(uint step, uint first_row)
{
    [[unroll]] for (uint i = 0; i < FINISHED; ++i) {
        uint row = min(row_of_finished(first_row, i), dispatch.batch - 1);
        x[i] = input_part(step, row);
        own_length[i] = row_length(row);
        own_h[i] = load_word(h_slot(step), row);
        if (OWN_VECTORS != 0) own_cell[i] = uintBitsToFloat(state_words[word_of(0, row)]);
    }
}

// Returns the place in the tile of this invocation's n-th vec4. In the last round some have none: they load the last one, so
// that no load is in a branch, but do not store it, because two stores to a word are a race even of equal values.
uint place_in_tile(uint n) { return min(gl_LocalInvocationID.x + n * WORKGROUP, TILE_SIZE - 1); }

void put_in_tile(uint n, vec4 value)
{
    bool all_have_one = (n + 1) * WORKGROUP <= TILE_SIZE;
    if (all_have_one || gl_LocalInvocationID.x + n * WORKGROUP < TILE_SIZE) tile[place_in_tile(n)] = value;
}

// Returns the place in the buffer of a tile's vec4.
uint place_in_state(uint slot, uint first_row, uint place)
{
    uint row = min(first_row + place / HIDDEN_VECS, dispatch.batch - 1);
    return vector_start(OWN_VECTORS + slot, direction, row) + place % HIDDEN_VECS;
}

vec4 source_vec(uint r, uint vec)
{
    if (TILE_VECS != 0) return tile[r * HIDDEN_VECS + vec];
    return state_vecs[place_in_state(source_slot_now, source_row, r * HIDDEN_VECS + vec)];
}

#define SUM_VEC(place) tile[FIRST_SUM + (place)]
#include "stored_sums.glsl"

void begin_sums()
{
    if (FIRST_SUM < TILE_VECS) barrier();
}

// A schedule defines this: it brings a slot of a tile's rows to where source_vec finds them.
void fetch_tile(uint slot, uint first_row);
