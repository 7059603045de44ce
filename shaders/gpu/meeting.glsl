// The schedule *persistent*: a dispatch runs a chunk of steps, and the parts of a group of rows wait for each other in it. Vulkan does not
// promise that they run at the same time, so each wait is bounded: who has waited too long says so in the first word, waits for
// nothing any more and goes on to its end with whatever is there, and so do all who see the word. The host looks at it and runs
// what needs no waiting instead. gpu/begin.comp makes the other words 0: the arrivals of each group, MEETING_WORDS apart.
// Workgroups: x groups of rows, y directions, z parts.
layout(constant_id = 65) const uint PARTS = 1;
layout(constant_id = 67) const uint SPINS = 1;             // looks in vain of an invocation, after which it gives up: in one wait
layout(constant_id = 80) const uint COUNTED_TOGETHER = 0;  // or, where a driver bounds all loops of a dispatch, in all waits
layout(constant_id = 77) const uint MEETING_WORDS = 1;
layout(binding = 12) coherent buffer Meeting { uint meeting[]; };
const uint LOOKS = 64;  // between two at whether another has given up
uint spins = 0;  // of this wait; SPINS or more of one who has given up

void begin_wait()
{
    if (COUNTED_TOGETHER == 0 && spins < SPINS) spins = 0;
}

void count_look_in_vain()
{
    if (++spins == SPINS) {
        atomicOr(meeting[0], 1);
    } else if (spins % LOOKS == 0 && meeting[0] != 0) {
        spins = SPINS;
    }
}

// A schedule defines: what all parts stored before is seen by all after it
void meet();

// Zeros at the times that no row of the group has a step for, and, in flow, the last h where later dispatches look for it
void end_group(uint steps)
{
    uint start = max(dispatch.first_step, steps);
    [[dont_unroll]] for (uint row = first_row_of_group() + column_group; row < end_row_of_group(); row += COLUMN_GROUPS) {
        if (unit >= HIDDEN) continue;
        if (IN_FLOW != 0 && start < dispatch.last_step) publish(h_slot(dispatch.last_step), row, load_word(h_slot(start), row));
        if (HAS_SEQUENCE != 0)
            for (uint time = start; time < dispatch.last_step; ++time)
                store_output(time * dispatch.sequence_stride_t + PLACE_OF(sequence, row, unit), 0.0);
    }
}

void main()
{
    // One invocation looks, so that all of a workgroup go one way
    if (gl_LocalInvocationID.x == 0) tile[0].x = float(meeting[0]);
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
        meet();
        if (PHASES == 2) {
            run_phase(1, step);
            meet();
        }
    }
    if (HAS_LENGTHS != 0) end_group(steps);
}
