// Loads the LSTM's initial cell state c and stores its last one.
layout(constant_id = 150) const uint HAS_INITIAL_C = 0;
layout(constant_id = 154) const uint HAS_CELL_SINGLE = 0;
layout(binding = 9) readonly buffer CellMemInit { uint initial_c[]; };
layout(binding = 10) buffer OutputCellSingle { STORED output_cell_single[]; };

void begin_cell(bool first, uint r, uint row, uint unit)
{
    if (!first) fetch_state(CELL_SLOT, r, unit);
    else if (HAS_INITIAL_C != 0) store_state(CELL_SLOT, r, unit, LOAD_ELEMENT(initial_c, PLACE_OF(initial_c, row, unit)));
}

void end_cell(bool last, uint r, uint row, uint unit)
{
    if (!last) keep_state(CELL_SLOT, r, unit);
    else if (HAS_CELL_SINGLE != 0) {
        real c = length_of(r) == 0 ? ZERO : load_state(CELL_SLOT, r, unit);
        STORE_ELEMENT(output_cell_single, PLACE_OF(cell_single, row, unit), c);
    }
}
