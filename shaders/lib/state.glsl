// What a tile of ROWS batch rows keeps from phase to phase and step to step: SLOTS vectors a row, each HIDDEN_VECS real4s, row
// after row, or, with ROW_LANES, the rows' real4s beside each other, as the invocations of a subgroup take them.
// Slots 0 and 1 hold h, of even and of odd steps; with two phases slot 0 holds h, which nobody reads in the phase that stores
// it. OWN_SLOT is read only by the invocation that stored it; the cell names it and slot 1. The state lives in a buffer, or,
// with SHARED_STATE (not in the *_lanes and *_rows kernels), in shared memory, and goes to the buffer only between dispatches.
#extension GL_KHR_memory_scope_semantics : require
layout(constant_id = 130) const uint SLOTS = 2;
layout(constant_id = 132) const uint PHASES = 1;  // of a step
const uint OWN_SLOT = 2;
layout(constant_id = 131) const uint SHARED_STATE = 0;
layout(binding = STATE_BINDING) coherent buffer State { vec4 state_vecs[]; };

#ifdef ROW_LANES
const uint SUMS_VECS = GATES * LANES * HIDDEN_VECS * 4;  // behind the slots (phase_of_rows.glsl)
#else
const uint SUMS_VECS = 0;
#endif
const uint TILE_VECS = SLOTS * ROWS * HIDDEN_VECS + SUMS_VECS;
uint tile_state;  // where the tile's state starts in the buffer, in real4s
#ifdef ROW_LANES
uint state_vec(uint slot, uint row, uint vec) { return (slot * HIDDEN_VECS + vec) * ROWS + row; }
#else
uint state_vec(uint slot, uint row, uint vec) { return (slot * ROWS + row) * HIDDEN_VECS + vec; }
#endif

#if defined(SHUFFLE) && !defined(RESIDENT)
const bool IN_SHARED = false;
#else
const bool IN_SHARED = SHARED_STATE != 0;
#endif
#ifdef RESIDENT  // OWN_SLOT's place is better used for more rows
#define SHARED_SLOTS 2
bool in_shared(uint slot) { return IN_SHARED && (slot & OWN_SLOT) == 0; }  // drivers see that h_slot has not that bit
#else
#define SHARED_SLOTS SLOTS
bool in_shared(uint slot) { return IN_SHARED; }
#endif
const uint SHARED_VECS = IN_SHARED ? SHARED_SLOTS * ROWS * HIDDEN_VECS : 1;
uint h_slot(uint step) { return PHASES == 2 ? 0 : step & 1; }

#ifdef SHUFFLE  // CPU drivers charge for loads, not for components
shared vec4 shared_state[SHARED_VECS];
vec4 get_shared_vec(uint i) { return shared_state[whole(i)]; }
float get_shared(uint i, uint c) { return shared_state[whole(i)][c]; }
void put_shared(uint i, uint c, float value) { shared_state[whole(i)][c] = value; }
#else
shared real shared_state[SHARED_VECS * 4];
real get_shared(uint i, uint c) { return shared_state[i * 4 + c]; }
void put_shared(uint i, uint c, real value) { shared_state[i * 4 + c] = value; }
real4 get_shared_vec(uint i)
{
    real4 v;
    [[unroll]] for (uint c = 0; c < 4; ++c) set_component(v, c, get_shared(i, c));
    return v;
}
#endif

// In the buffer, which has whole floats for its components: a pair's are in two vec4s
#ifdef PAIRS
real4 get_vec(uint i) { return real4(state_vecs[2 * i], state_vecs[2 * i + 1]); }
real get_component(uint i, uint c) { return vec2(state_vecs[2 * i][c], state_vecs[2 * i + 1][c]); }
void put_component(uint i, uint c, real value)
{
    state_vecs[2 * i][c] = value.x;
    state_vecs[2 * i + 1][c] = value.y;
}
#else
layout(binding = STATE_BINDING) coherent buffer StateFloats { float state_floats[]; };
real4 get_vec(uint i) { return state_vecs[whole(i)]; }
real get_component(uint i, uint c) { return state_floats[whole(i * 4 + c)]; }
void put_component(uint i, uint c, real value) { state_floats[whole(i * 4 + c)] = value; }
#endif

real4 load_state_vec(uint slot, uint row, uint vec)
{
    uint i = state_vec(slot, row, vec);
    return IN_SHARED ? get_shared_vec(i) : get_vec(tile_state + i);
}

#ifdef RESIDENT
#include "own_state.glsl"
#else
const bool KEEPS_OWN = false;
real load_own(uint slot, uint unit) { return number(0.0); }
void store_own(uint slot, uint unit, real value) {}
#endif
bool in_buffer(uint slot) { return !in_shared(slot) && !KEEPS_OWN; }

real load_state(uint slot, uint row, uint unit)
{
    if (KEEPS_OWN) return load_own(slot, unit);
    uint i = state_vec(slot, row, unit / 4);
    return in_shared(slot) ? get_shared(i, unit % 4) : get_component(tile_state + i, unit % 4);
}

void store_state(uint slot, uint row, uint unit, real value)
{
    if (KEEPS_OWN) {
        store_own(slot, unit, value);
        if (slot == OWN_SLOT) return;
    }
    uint i = state_vec(slot, row, unit / 4);
    if (in_shared(slot)) put_shared(i, unit % 4, value);
    else put_component(tile_state + i, unit % 4, value);
}

// Between dispatches, for the slots that outlive one.
void fetch_state(uint slot, uint row, uint unit)
{
    if (!in_buffer(slot)) store_state(slot, row, unit, get_component(tile_state + state_vec(slot, row, unit / 4), unit % 4));
}

void keep_state(uint slot, uint row, uint unit)
{
    if (!in_buffer(slot)) put_component(tile_state + state_vec(slot, row, unit / 4), unit % 4, load_state(slot, row, unit));
}

// All invocations of the workgroup see what any of them stored before. One subgroup needs less than a workgroup of several:
// llvmpipe runs a shader with a workgroup's barrier at half the speed.
void state_barrier()
{
#ifdef SHUFFLE
    if (WORKGROUP == LANES) {
        subgroupBarrier();
        return;
    }
#endif
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}
