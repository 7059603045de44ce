// A tile's state: SLOTS vectors a row, row after row, in shared memory where it fits (SHARED_STATE), else in a buffer.
#extension GL_KHR_memory_scope_semantics : require
layout(constant_id = 131) const uint SHARED_STATE = 0;
layout(binding = 8) coherent buffer State { float state[]; };
layout(binding = 8) coherent buffer StateVecs { vec4 state_vecs[]; };
const uint TILE_VECS = SLOTS * ROWS * HIDDEN_VECS;
shared float shared_state[SHARED_STATE != 0 ? TILE_VECS * 4 : 1];
uint tile_state;  // where the tile's state starts in the buffer, in vec4s

uint place_in_tile(uint slot, uint r, uint unit) { return (slot * ROWS + r) * HIDDEN_VECS * 4 + unit; }
uint place_in_buffer(uint slot, uint r, uint unit) { return tile_state * 4 + place_in_tile(slot, r, unit); }
bool in_shared(uint slot) { return SHARED_STATE != 0; }

float load_state(uint slot, uint r, uint unit)
{
    return SHARED_STATE != 0 ? shared_state[place_in_tile(slot, r, unit)] : state[place_in_buffer(slot, r, unit)];
}

vec4 load_state_vec(uint slot, uint r, uint vec)
{
    uint i = place_in_tile(slot, r, vec * 4);
    if (SHARED_STATE == 0) return state_vecs[tile_state + i / 4];
    return vec4(shared_state[i], shared_state[i + 1], shared_state[i + 2], shared_state[i + 3]);
}

void store_state(uint slot, uint r, uint unit, float value)
{
    if (SHARED_STATE != 0) shared_state[place_in_tile(slot, r, unit)] = value;
    else state[place_in_buffer(slot, r, unit)] = value;
}

void fetch_state(uint slot, uint r, uint unit)
{
    if (SHARED_STATE != 0) shared_state[place_in_tile(slot, r, unit)] = state[place_in_buffer(slot, r, unit)];
}

void keep_state(uint slot, uint r, uint unit)
{
    if (SHARED_STATE != 0) state[place_in_buffer(slot, r, unit)] = shared_state[place_in_tile(slot, r, unit)];
}

// All invocations of the workgroup see what any of them stored before
void state_barrier()
{
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

void store_output(uint i, float value) { STORE_ELEMENT(output_sequence, i, value); }
