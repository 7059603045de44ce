// The schedule *persistent*: a dispatch runs a chunk of steps, and the parts of a group of rows wait for each other in it.
// Vulkan does not promise that they run at the same time, so each wait is bounded. An invocation that has waited too long sets
// the word `gave_up`, stops waiting and goes on to its end with whatever is there. So do all that see the word. The host reads it
// and then runs a schedule without waits. A kernel defines POLLED, the words' qualifier: volatile or coherent.
// Workgroups: x groups of rows, y directions, z parts.
layout(constant_id = 67) const uint SPINS = 1;             // an invocation gives up after so many looks in vain, in one wait
layout(constant_id = 80) const uint COUNTED_TOGETHER = 0;  // or in all waits together, if a driver bounds a dispatch's loops
layout(binding = 12) coherent buffer GaveUp { uint gave_up; };
const uint LOOKS = 64;  // looks after which an invocation checks whether another has given up
uint spins = 0;  // looks in this wait; SPINS or more once this invocation has given up

bool any_gave_up() { return atomicLoad(gave_up, gl_ScopeDevice, 0, gl_SemanticsRelaxed) != 0; }

void begin_wait()
{
    if (COUNTED_TOGETHER == 0 && spins < SPINS) spins = 0;
}

void count_look_in_vain()
{
    if (++spins == SPINS) {
        atomicOr(gave_up, 1);
    } else if (spins % LOOKS == 0 && any_gave_up()) {
        spins = SPINS;
    }
}

// Stores zeros at the times for which no row of the group has a step, and the last h for later dispatches.
void end_group(uint steps)
{
    uint start = max(dispatch.first_step, steps);
    [[dont_unroll]] for (uint row = first_row_of_group() + column_group; row < end_row_of_group(); row += COLUMN_GROUPS) {
        if (unit >= HIDDEN) continue;
        if (start < dispatch.last_step) {
            publish(h_slot(dispatch.last_step), row, load_word(h_slot(start), row));
            if (SOURCES > 1) publish_words(h_slot(dispatch.last_step), row, false);
        }
        if (HAS_SEQUENCE != 0)
            for (uint time = start; time < dispatch.last_step; ++time)
                [[unroll]] for (uint w = 0; w < WORDS; ++w)
                    store_output(time * dispatch.sequence_stride_t + PLACE_OF(sequence, row, w * HIDDEN + unit), 0.0);
    }
}

void main()
{
    // One invocation checks the word, so that all of a workgroup take the same way.
    if (gl_LocalInvocationID.x == 0) tile[0].x = float(any_gave_up());
    begin_part();
    keep_weights(0, GATES);
    barrier();
    bool is_over = tile[0].x != 0.0;
    barrier();
    if (is_over) return;
    uint steps = dispatch.steps;
    if (HAS_LENGTHS != 0) {
        steps = 0;
        for (uint row = first_row_of_group(); row < end_row_of_group(); ++row) steps = max(steps, row_length(row));
    }
    [[dont_unroll]] for (uint step = dispatch.first_step; step < min(dispatch.last_step, steps); ++step) {
        run_phase(0, step);
        if (PHASES == 2) run_phase(1, step);
    }
    if (HAS_LENGTHS != 0) {
        // Another invocation may have stored a row's last h.
        controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
        end_group(steps);
    }
}

// Each word of h is its own flag. gpu/begin.comp sets the words to come to NOT_THERE, which no h is.
layout(binding = 8) POLLED buffer Words { uvec4 words_to_come[]; };

// Loads the words of a tile until they are there.
void fetch_tile(uint slot, uint first_row)
{
    bool is_there;
    begin_wait();
    [[dont_unroll]] do {
        uvec4 found[FETCHES];
        [[unroll]] for (uint n = 0; n < FETCHES; ++n) found[n] = words_to_come[place_in_state(slot, first_row, place_in_tile(n))];
        // NOT_THERE is the largest word. A compiler makes no branches of max(), which would let the loads wait for each other.
        uvec4 largest = found[0];
        [[unroll]] for (uint n = 1; n < FETCHES; ++n) largest = max(largest, found[n]);
        is_there = max(max(largest.x, largest.y), max(largest.z, largest.w)) != NOT_THERE;
        // This stands in the loop, because drivers that mask invocations lose `found` while others of a subgroup go on.
        if (is_there) {
            [[unroll]] for (uint n = 0; n < FETCHES; ++n) put_in_tile(n, uintBitsToFloat(found[n]));
        } else {
            count_look_in_vain();
        }
    } while (!is_there && spins < SPINS);
}
