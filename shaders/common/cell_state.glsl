// The LSTM's second state, c: where it starts and where its last value goes.
layout(constant_id = 150) const uint HAS_INITIAL_C = 0;
layout(constant_id = 151) const uint HAS_CELL_SINGLE = 0;
layout(constant_id = 152) const uint INITIAL_C_STRIDE_D = 0;
layout(constant_id = 153) const uint INITIAL_C_STRIDE_B = 0;
layout(constant_id = 154) const uint INITIAL_C_STRIDE_H = 0;
layout(constant_id = 155) const uint CELL_SINGLE_STRIDE_D = 0;
layout(constant_id = 156) const uint CELL_SINGLE_STRIDE_B = 0;
layout(constant_id = 157) const uint CELL_SINGLE_STRIDE_H = 0;
layout(binding = 9) readonly buffer CellMemInit { uint initial_c[]; };
layout(binding = 10) buffer OutputCellSingle { uint output_cell_single[]; };
const uint CELL_SLOT = OWN_SLOT;

void begin_cell(bool first, uint r, uint row, uint unit)
{
    if (!first) fetch_state(CELL_SLOT, r, unit);
    else if (HAS_INITIAL_C != 0)
        store_state(CELL_SLOT, r, unit, LOAD_ELEMENT(initial_c, direction * INITIAL_C_STRIDE_D + row * INITIAL_C_STRIDE_B
                                                                + unit * INITIAL_C_STRIDE_H));
}

void end_cell(bool last, uint r, uint row, uint unit)
{
    if (!last) keep_state(CELL_SLOT, r, unit);
    else if (HAS_CELL_SINGLE != 0) {
        real c = length_of(r) == 0 ? ZERO : load_state(CELL_SLOT, r, unit);
        uint i = direction * CELL_SINGLE_STRIDE_D + row * CELL_SINGLE_STRIDE_B + unit * CELL_SINGLE_STRIDE_H;
        STORE_ELEMENT(output_cell_single, i, c);
    }
}
