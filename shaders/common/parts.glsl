// For kernels that run in several schedules. PARTS workgroups share a tile's units:
// - PARTS == 1, *sequence*: a workgroup runs all steps of the chunk by itself.
// - SPINS > 0, *persistent*: the parts run all steps of the chunk and meet at a barrier of their own after each phase. Vulkan
//   does not promise that they run at the same time, so waiting is bounded: a workgroup that waits too long sets a flag in the
//   state's buffer and ends; the others then wait too long as well, or see the flag when they begin. The host checks the flag.
//   A last dispatch, of no step, stores the last states, as what runs instead needs the initial ones, and a buffer may hold both.
// - SPINS == 0, *stepped*: a dispatch is one phase of one step; one more before them makes the state.
// Workgroups: x tiles, y directions, z parts.
layout(constant_id = 65) const uint PARTS = 1;
layout(constant_id = 67) const uint SPINS = 0;        // bound on the slow spins of a dispatch
layout(constant_id = 69) const uint QUICK_SPINS = 1;  // of a barrier, before the slow ones
const bool IS_STEPPED = PARTS > 1 && SPINS == 0;
const uint POLLS = 16;  // of a slow spin

// Behind the states: the flag, then for each tile how many workgroups have arrived, and how many have left.
layout(binding = 8) coherent buffer Barrier { uint barrier_words[]; };
bool gave_up = false;
uint flag, tile_words, arrivals, spins;  // flag, tile_words: places in barrier_words
shared uint shared_arrivals;

// False if a workgroup gave up, in this dispatch or one before. One invocation looks, so that all of its workgroup go one way.
bool begin_barrier(uint tile)
{
    if (SPINS == 0) return true;
    flag = gl_NumWorkGroups.x * gl_NumWorkGroups.y * TILE_VECS * REAL4_WORDS;
    tile_words = flag + 1 + tile * 2;
    arrivals = spins = 0;
    if (gl_LocalInvocationID.x == 0) shared_arrivals = atomicOr(barrier_words[flag], 0);
    state_barrier();
    return shared_arrivals == 0;
}

void parts_barrier()
{
    state_barrier();
    arrivals += PARTS;
    if (gl_LocalInvocationID.x == 0) {
        memoryBarrierBuffer();
        uint seen = atomicAdd(barrier_words[tile_words], 1) + 1;
        for (uint spin = 0; spin < QUICK_SPINS && seen < arrivals; ++spin) seen = atomicOr(barrier_words[tile_words], 0);
        for (; spins < SPINS && seen < arrivals; ++spins)
            [[unroll]] for (uint poll = 0; poll < POLLS; ++poll) seen = max(seen, atomicOr(barrier_words[tile_words], 0));
        if (seen < arrivals) atomicOr(barrier_words[flag], 1);
        memoryBarrierBuffer();
        shared_arrivals = seen;
    }
    state_barrier();
    gave_up = shared_arrivals < arrivals;
}

// Whoever leaves last makes the counters ready for the next dispatch
void end_barrier()
{
    if (SPINS == 0 || gl_LocalInvocationID.x != 0) return;
    if (atomicAdd(barrier_words[tile_words + 1], 1) + 1 == PARTS && !gave_up) {
        atomicExchange(barrier_words[tile_words], 0);
        atomicExchange(barrier_words[tile_words + 1], 0);
    }
}

bool has_phase(uint phase) { return !IS_STEPPED || dispatch.phase == phase; }
bool is_end() { return (SPINS != 0 ? dispatch.first_step : dispatch.last_step) == dispatch.steps; }

void phase_barrier()
{
    if (PARTS == 1) state_barrier();
    else if (SPINS != 0 && !is_end()) parts_barrier();
}


void main()
{
    direction = gl_WorkGroupID.y;
    first_row = gl_WorkGroupID.x * ROWS;
    uint tile = direction * dispatch.tiles + gl_WorkGroupID.x;
    tile_state = tile * TILE_VECS;
    first_unit = gl_WorkGroupID.z * PART_UNITS;
    end_unit = min(first_unit + PART_UNITS, HIDDEN);
    if (!begin_barrier(tile)) return;

    uint steps, shortest;
    begin_tile(steps, shortest);
    bool starts = IS_STEPPED ? dispatch.last_step == 0 : dispatch.first_step == 0;
    if (!IS_STEPPED || starts) {
        // What pads the last vec4s belongs to the last part
        bool is_last = first_unit < HIDDEN && end_unit == HIDDEN;
        begin_state(starts, first_unit, is_last ? HIDDEN_VECS * 4 : end_unit);
    }
    for (uint step = dispatch.first_step; step < min(dispatch.last_step, steps) && !gave_up; ++step) run_step(step);
    if (IS_STEPPED && (starts || dispatch.phase + 1 < PHASES)) return;
    end_rows(shortest);
    end_barrier();
}
