// Keeps a tile's state for kernels with resident weights. The slots that other invocations read are in shared memory if the
// tile's rows fit (SHARED_STATE), else in a buffer. OWN_SLOT is never in shared memory: its place is better used for more rows.
// With one row, an invocation also keeps its last h and its OWN_SLOT in private memory, because its units are always the same.
layout(constant_id = 131) const uint SHARED_STATE = 0;
layout(constant_id = 133) const uint SHARED_SLOTS = 1;
layout(binding = 8) coherent buffer State { vec4 state_vecs[]; };
layout(binding = 8) coherent buffer StateFloats { float state_floats[]; };
const uint TILE_VECS = SLOTS * ROWS * HIDDEN_VECS;
const bool IN_SHARED = SHARED_STATE != 0;
shared vec4 shared_state[IN_SHARED ? SHARED_SLOTS * ROWS * HIDDEN_VECS : 1];
uint tile_state;  // where the tile's state starts in the buffer, in vec4s

uint state_vec(uint slot, uint row, uint vec) { return (slot * ROWS + row) * HIDDEN_VECS + vec; }
uint place_in_buffer(uint slot, uint row, uint unit)
{
    return whole((tile_state + state_vec(slot, row, unit / 4)) * 4 + unit % 4);
}

bool in_shared(uint slot) { return IN_SHARED && (slot & OWN_SLOT) == 0; }  // compilers see that h_slot never has this bit

const bool KEEPS_OWN = ROWS == 1;
float own_h[UNITS_AT_ONCE], own_slot[UNITS_AT_ONCE];

uint unit_of(uint u) { return first_unit + u * WORKGROUP + gl_LocalInvocationID.x; }

float load_own(uint slot, uint unit)
{
    float value = 0.0;
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u)
        value = mix(value, slot == OWN_SLOT ? own_slot[u] : own_h[u], unit == unit_of(u));
    return value;
}

void store_own(uint slot, uint unit, float value)
{
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
        if (slot == OWN_SLOT) own_slot[u] = mix(own_slot[u], value, unit == unit_of(u));
        if (slot == 0 || (slot == 1 && PHASES == 1)) own_h[u] = mix(own_h[u], value, unit == unit_of(u));
    }
}

vec4 load_state_vec(uint slot, uint row, uint vec)
{
    uint i = state_vec(slot, row, vec);
    return IN_SHARED ? shared_state[whole(i)] : state_vecs[whole(tile_state + i)];
}

float load_state(uint slot, uint row, uint unit)
{
    if (KEEPS_OWN) return load_own(slot, unit);
    return in_shared(slot) ? shared_state[whole(state_vec(slot, row, unit / 4))][unit % 4]
                           : state_floats[place_in_buffer(slot, row, unit)];
}

void store_state(uint slot, uint row, uint unit, float value)
{
    if (KEEPS_OWN) {
        store_own(slot, unit, value);
        if (slot == OWN_SLOT) return;
    }
    if (in_shared(slot)) shared_state[whole(state_vec(slot, row, unit / 4))][unit % 4] = value;
    else state_floats[place_in_buffer(slot, row, unit)] = value;
}

void fetch_state(uint slot, uint row, uint unit)
{
    if (in_shared(slot) || KEEPS_OWN) store_state(slot, row, unit, state_floats[place_in_buffer(slot, row, unit)]);
}

void keep_state(uint slot, uint row, uint unit)
{
    if (in_shared(slot) || KEEPS_OWN) state_floats[place_in_buffer(slot, row, unit)] = load_state(slot, row, unit);
}
