// Where `gates`, the input's part of the gates, is for a unit at a step. It is packed
// [step][direction][unit / UNITS_TOGETHER][row][unit % UNITS_TOGETHER] (lanes.glsl), a real4 with a component a gate, or, with
// ROW_LANES, [step][direction][tile][unit][gate][lane], a vec4 with a component a vector.
#ifdef ROW_LANES
uint gates_place(uint step, uint direction, uint tile, uint unit, uint gate)
{
    return whole(((((step * DIRECTIONS + direction) * TILES + tile) * UNITS + unit) * GATES + gate) * LANES + LANE);
}
#else
uint gates_place(uint step, uint direction, uint row, uint unit)
{
    uint first = first_together(unit);
    return whole(((step * DIRECTIONS + direction) * UNITS + first) * BATCH + row * UNITS_TOGETHER + unit - first);
}
#endif
