// What a tile of ROWS batch rows keeps from phase to phase and step to step: SLOTS vectors a row, each HIDDEN_VECS vec4s.
// Slots 0 and 1 hold h, of even and of odd steps; the cell names the others. It lives in a buffer, or, with SHARED_STATE
// (not in the *_lanes kernels), in shared memory, and goes to the buffer only between dispatches.
#extension GL_KHR_memory_scope_semantics : require
layout(constant_id = 60) const uint SLOTS = 2;
layout(constant_id = 61) const uint SHARED_STATE = 0;
layout(binding = STATE_BINDING) coherent buffer State { vec4 state_vecs[]; };

uint tile_state;  // where the tile's state starts in the buffer, in vec4s
uint state_vec(uint slot, uint row) { return (slot * ROWS + row) * HIDDEN_VECS; }

#ifdef SHUFFLE
const bool IN_SHARED = false;
#else
const bool IN_SHARED = SHARED_STATE != 0;
const uint SHARED_FLOATS = IN_SHARED ? SLOTS * ROWS * HIDDEN_VECS * 4 : 1;
shared float shared_state[SHARED_FLOATS];
#endif

vec4 load_state_vec(uint slot, uint row, uint vec)
{
#ifndef SHUFFLE
    if (IN_SHARED) {
        uint i = (state_vec(slot, row) + vec) * 4;
        return vec4(shared_state[i], shared_state[i + 1], shared_state[i + 2], shared_state[i + 3]);
    }
#endif
    return state_vecs[tile_state + state_vec(slot, row) + vec];
}

float load_state(uint slot, uint row, uint unit)
{
#ifndef SHUFFLE
    if (IN_SHARED) return shared_state[state_vec(slot, row) * 4 + unit];
#endif
    return state_vecs[tile_state + state_vec(slot, row) + unit / 4][unit % 4];
}

void store_state(uint slot, uint row, uint unit, float value)
{
#ifndef SHUFFLE
    if (IN_SHARED) {
        shared_state[state_vec(slot, row) * 4 + unit] = value;
        return;
    }
#endif
    state_vecs[tile_state + state_vec(slot, row) + unit / 4][unit % 4] = value;
}

// Between dispatches, for the slots that outlive one.
void fetch_state(uint slot, uint row, uint unit)
{
    if (IN_SHARED) store_state(slot, row, unit, state_vecs[tile_state + state_vec(slot, row) + unit / 4][unit % 4]);
}

void keep_state(uint slot, uint row, uint unit)
{
    if (IN_SHARED) state_vecs[tile_state + state_vec(slot, row) + unit / 4][unit % 4] = load_state(slot, row, unit);
}

// All invocations of the workgroup see what any of them stored before.
void state_barrier()
{
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}
