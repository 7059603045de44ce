// Fetches a tile in *persistent*: each word of h is its own flag. gpu/begin.comp sets the words to come to NOT_THERE, which no h
// is, and an invocation loads a word until it is there. A kernel declares words_to_come, as volatile or coherent.
void fetch_tile(uint slot, uint first_row)
{
    bool is_there;
    begin_wait();
    [[dont_unroll]] do {
        uvec4 found[FETCHES];
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) found[n] = words_to_come[place_in_state(slot, first_row, place_in_tile(n))];
        is_there = true;
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) is_there = is_there && all(notEqual(found[n], uvec4(NOT_THERE)));
        // This stands in the loop, because drivers that mask invocations lose `found` while others of a subgroup go on.
        if (is_there) {
            [[unroll]] for (uint n = 0; n < FETCHES; ++n) put_in_tile(n, uintBitsToFloat(found[n]));
        } else {
            count_look_in_vain();
        }
    } while (!is_there && spins < SPINS);
}
