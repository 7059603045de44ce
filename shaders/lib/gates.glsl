// Where `gates`, the input's part of the gates, is for a unit at a step. For loops whose invocations hold units it is packed
// [step][direction][unit / UNITS_TOGETHER][row][unit % UNITS_TOGETHER] (lanes.glsl), a real4 with a component a gate.
uint gates_start(uint step, uint direction, uint row)
{
    return (step * DIRECTIONS + direction) * UNITS * BATCH + row * UNITS_TOGETHER;
}

uint gates_place(uint start, uint unit)
{
    uint first = first_together(unit);
    return whole(start + first * BATCH + unit - first);
}

#ifdef ROW_LANES
// For loops whose invocations hold rows: [step][direction][tile][unit][gate][lane], a vec4 with a component a vector
uint gates_place_of_tile(uint step, uint direction, uint tile, uint unit, uint gate)
{
    return whole(((((step * DIRECTIONS + direction) * TILES + tile) * UNITS + unit) * GATES + gate) * LANES + LANE);
}
#endif
