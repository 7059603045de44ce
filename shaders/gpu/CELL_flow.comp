// Persistent parts in flow, without a barrier: each word of h is its own flag. gpu/begin.comp makes the words to come NOT_THERE,
// which no h is; whoever needs a word loads it until it is there.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "../common/problem.glsl"
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/store_STORAGE.glsl"
#include "../common/recurrence.glsl"
#include "../common/activations.glsl"
#include "../cells/CELL.glsl"
#include "state_layout.glsl"
#include "products.glsl"
#include "exchange.glsl"
#include "part_step.glsl"
#include "meeting.glsl"

const uint LOOKS = 64;  // between two at whether another has given up
layout(binding = 8) volatile buffer Words { uvec4 words_to_come[]; };

void fetch_tile(uint slot, uint first_row)
{
    bool is_there;
    [[dont_unroll]] do {
        uvec4 found[FETCHES];
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) found[n] = words_to_come[place_in_state(slot, first_row, place_in_tile(n))];
        is_there = true;
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) is_there = is_there && all(notEqual(found[n], uvec4(NOT_THERE)));
        // Not after the loop: where others of a subgroup go on, drivers that mask lose what was found
        if (is_there) {
            [[unroll]] for (uint n = 0; n < FETCHES; ++n) tile[place_in_tile(n)] = uintBitsToFloat(found[n]);
        } else if (++spins == SPINS) {
            give_up();
        } else if (spins % LOOKS == 0 && meeting[0] != 0) {  // another has: the waiting of all is bounded, not of each by itself
            spins = SPINS;
        }
    } while (!is_there && spins < SPINS);
}

void meet() {}
