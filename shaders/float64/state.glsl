// Keeps the state of a tile of one row: SLOTS vectors of real4s, in shared memory if they fit (SHARED_STATE), else in a buffer,
// where a real4 is two vec4s.
#extension GL_KHR_memory_scope_semantics : require
layout(constant_id = 131) const uint SHARED_STATE = 0;
layout(binding = 8) coherent buffer State { vec4 state_vecs[]; };
const uint TILE_VECS = SLOTS * HIDDEN_VECS;
shared real shared_state[SHARED_STATE != 0 ? TILE_VECS * 4 : 1];
uint tile_state;  // where the tile's state starts in the buffer, in real4s

uint row_of(uint r) { return first_row; }
uint length_of(uint r) { return row_length(first_row); }
void begin_tile(out uint steps, out uint shortest) { steps = shortest = row_length(first_row); }

real get_component(uint i, uint c) { return vec2(state_vecs[2 * i][c], state_vecs[2 * i + 1][c]); }
void put_component(uint i, uint c, real value)
{
    state_vecs[2 * i][c] = value.x;
    state_vecs[2 * i + 1][c] = value.y;
}

uint place_in_buffer(uint slot, uint unit) { return tile_state + slot * HIDDEN_VECS + unit / 4; }
uint place_in_shared(uint slot, uint unit) { return slot * HIDDEN_VECS * 4 + unit; }
bool in_shared(uint slot) { return SHARED_STATE != 0; }

real load_state(uint slot, uint r, uint unit)
{
    return SHARED_STATE != 0 ? shared_state[place_in_shared(slot, unit)] : get_component(place_in_buffer(slot, unit), unit % 4);
}

real4 load_state_vec(uint slot, uint vec)
{
    if (SHARED_STATE == 0) {
        uint i = place_in_buffer(slot, vec * 4);
        return real4(state_vecs[2 * i], state_vecs[2 * i + 1]);
    }
    real4 v;
    [[unroll]] for (uint c = 0; c < 4; ++c) set_component(v, c, shared_state[place_in_shared(slot, vec * 4 + c)]);
    return v;
}

void store_state(uint slot, uint r, uint unit, real value)
{
    if (SHARED_STATE != 0) shared_state[place_in_shared(slot, unit)] = value;
    else put_component(place_in_buffer(slot, unit), unit % 4, value);
}

void fetch_state(uint slot, uint r, uint unit)
{
    if (SHARED_STATE != 0) shared_state[place_in_shared(slot, unit)] = get_component(place_in_buffer(slot, unit), unit % 4);
}

void keep_state(uint slot, uint r, uint unit)
{
    if (SHARED_STATE != 0) put_component(place_in_buffer(slot, unit), unit % 4, shared_state[place_in_shared(slot, unit)]);
}

void state_barrier()
{
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

void store_output(uint i, real value) { STORE_ELEMENT(output_sequence, i, value); }
