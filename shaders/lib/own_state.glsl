// A unit's state that no other invocation reads: its last h, and its OWN_SLOT. In the *_resident kernels an invocation's units
// stay the same, and so this stays with it in private memory, for tiles of one row.
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
