// The layout of packed weights and of `gates` for invocations that hold UNITS_AT_ONCE units each. Those of LANES units lie
// together, so that a subgroup's loads, one after the other, are from one place.
layout(constant_id = 1) const uint UNITS_AT_ONCE = 1;

uint first_together(uint unit) { return unit / LANES * LANES; }

// Returns where a unit's weights start, counted in loads: [direction][unit / LANES][load][gate][unit % LANES].
uint weights_start(uint direction, uint unit, uint loads)
{
    uint first = first_together(unit);
    return (direction * UNITS + first) * loads * GATES + unit - first;
}

uint weights_place(uint start, uint load, uint gate) { return start + (load * GATES + gate) * LANES; }

// Return where a row's gates start at a step, and where a unit's are from there: [step][direction][unit / LANES][row][unit %
// LANES], a vec4 with a component for each gate.
uint gates_start(uint step, uint direction, uint row) { return (step * DIRECTIONS + direction) * UNITS * dispatch.batch + row * LANES; }

uint gates_place(uint start, uint unit)
{
    uint first = first_together(unit);
    return whole(start + first * dispatch.batch + unit - first);
}
