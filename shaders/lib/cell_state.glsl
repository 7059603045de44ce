// The second state, c, of the cells that have one: its slot, where it starts and where its last value goes.
#define CELL_STATE
layout(constant_id = 150) const uint HAS_INITIAL_C = 0;
layout(constant_id = 151) const uint HAS_CELL_SINGLE = 0;
layout(constant_id = 152) const uint INITIAL_C_STRIDE_D = 0;
layout(constant_id = 153) const uint INITIAL_C_STRIDE_B = 0;
layout(constant_id = 154) const uint INITIAL_C_STRIDE_H = 0;
layout(constant_id = 155) const uint CELL_SINGLE_STRIDE_D = 0;
layout(constant_id = 156) const uint CELL_SINGLE_STRIDE_B = 0;
layout(constant_id = 157) const uint CELL_SINGLE_STRIDE_H = 0;
layout(binding = 8) readonly buffer CellMemInit { uint initial_c[]; };
layout(binding = 9) buffer OutputCellSingle { uint output_cell_single[]; };

const uint CELL_SLOT = OWN_SLOT;

void begin_cell_state(bool first, uint r, uint row, uint unit)
{
    if (!first) fetch_state(CELL_SLOT, r, unit);
    else if (HAS_INITIAL_C != 0)
        store_state(CELL_SLOT, r, unit, LOAD_ELEMENT(initial_c, direction * INITIAL_C_STRIDE_D + row * INITIAL_C_STRIDE_B
                                                                + unit * INITIAL_C_STRIDE_H));
}

void end_cell_state(bool last, bool is_empty, uint r, uint row, uint unit)
{
    if (!last) keep_state(CELL_SLOT, r, unit);
    else if (HAS_CELL_SINGLE != 0) {
        real c = is_empty ? number(0.0) : load_state(CELL_SLOT, r, unit);
        uint place = direction * CELL_SINGLE_STRIDE_D + row * CELL_SINGLE_STRIDE_B + unit * CELL_SINGLE_STRIDE_H;
        STORE_ELEMENT(output_cell_single, place, c);
    }
}
