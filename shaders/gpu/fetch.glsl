// Fetches a tile whose words were stored before this dispatch, so that it need not wait.
void fetch_tile(uint slot, uint first_row)
{
    source_slot_now = slot;
    source_row = first_row;
    if (TILE_VECS != 0) {
        vec4 found[FETCHES];
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) found[n] = state_vecs[place_in_state(slot, first_row, place_in_tile(n))];
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) put_in_tile(n, found[n]);
    }
}
