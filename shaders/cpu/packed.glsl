// Invocations that hold units, UNITS_AT_ONCE each. What a subgroup reads of packed weights and of `gates`, one load after the
// other, is in one place: those of LANES units together.
layout(constant_id = 1) const uint UNITS_AT_ONCE = 1;

uint first_together(uint unit) { return unit / LANES * LANES; }

// Where a unit's weights start, in loads: [direction][unit / LANES][load][gate][unit % LANES]
uint weights_start(uint direction, uint unit, uint loads)
{
    uint first = first_together(unit);
    return (direction * UNITS + first) * loads * GATES + unit - first;
}

uint weights_place(uint start, uint load, uint gate) { return start + (load * GATES + gate) * LANES; }

// Where `gates` has a row at a step, and then a unit of it: [step][direction][unit / LANES][row][unit % LANES], a vec4 with a
// component a gate
uint gates_start(uint step, uint direction, uint row) { return (step * DIRECTIONS + direction) * UNITS * dispatch.batch + row * LANES; }

uint gates_place(uint start, uint unit)
{
    uint first = first_together(unit);
    return whole(start + first * dispatch.batch + unit - first);
}
