// Persistent parts in flow, without a barrier: each word of h is its own flag. gpu/begin.comp makes the words to come NOT_THERE,
// which no h is; whoever needs a word loads it until it is there. A kernel declares words_to_come, with how they are loaded.
void fetch_tile(uint slot, uint first_row)
{
    bool is_there;
    begin_wait();
    [[dont_unroll]] do {
        uvec4 found[FETCHES];
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) found[n] = words_to_come[place_in_state(slot, first_row, place_in_tile(n))];
        is_there = true;
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) is_there = is_there && all(notEqual(found[n], uvec4(NOT_THERE)));
        // Not after the loop: where others of a subgroup go on, drivers that mask lose what was found
        if (is_there) {
            [[unroll]] for (uint n = 0; n < FETCHES; ++n) tile[place_in_tile(n)] = uintBitsToFloat(found[n]);
        } else {
            count_look_in_vain();
        }
    } while (!is_there && spins < SPINS);
}

void meet() {}
