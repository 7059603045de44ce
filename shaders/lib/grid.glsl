// A barrier of the PARTS workgroups that share a tile. Vulkan does not promise that they run at the same time, so waiting is
// bounded: a workgroup that has waited too long says so in a word of the state's buffer and ends, as the others do when they
// see it or wait too long for it. The host looks at the word, and runs another schedule instead.
// Behind the states: that word, then for each tile how many workgroups have arrived, and how many have left.
layout(binding = STATE_BINDING) coherent buffer Grid { uint grid_words[]; };
const uint QUICK_SPINS = 32;  // of a barrier, before the slow ones
const uint POLLS = 16;        // of a slow spin

bool gave_up = false;
uint grid_start, tile_words, arrivals, spins;
shared uint shared_arrivals;

// False if a dispatch before this one gave up
bool begin_grid(uint tile)
{
    if (SPINS == 0) return true;
    grid_start = gl_NumWorkGroups.x * gl_NumWorkGroups.y * TILE_VECS * REAL4_WORDS;
    tile_words = grid_start + 1 + tile * 2;
    arrivals = spins = 0;
    return atomicOr(grid_words[grid_start], 0) == 0;
}

void grid_barrier()
{
    state_barrier();
    arrivals += PARTS;
    if (gl_LocalInvocationID.x == 0) {
        memoryBarrierBuffer();
        uint seen = atomicAdd(grid_words[tile_words], 1) + 1;
        for (uint spin = 0; spin < QUICK_SPINS && seen < arrivals; ++spin) seen = atomicOr(grid_words[tile_words], 0);
        for (; spins < SPINS && seen < arrivals; ++spins)
            [[unroll]] for (uint poll = 0; poll < POLLS; ++poll) seen = max(seen, atomicOr(grid_words[tile_words], 0));
        if (seen < arrivals) atomicOr(grid_words[grid_start], 1);
        memoryBarrierBuffer();
        shared_arrivals = seen;
    }
    state_barrier();
    gave_up = shared_arrivals < arrivals;
}

// Whoever leaves last makes the counters ready for the next dispatch
void end_grid()
{
    if (SPINS == 0 || gl_LocalInvocationID.x != 0) return;
    if (atomicAdd(grid_words[tile_words + 1], 1) + 1 == PARTS && !gave_up) {
        atomicExchange(grid_words[tile_words], 0);
        atomicExchange(grid_words[tile_words + 1], 0);
    }
}

// What a phase stored is seen by all who read it in the next
void phase_barrier()
{
    if (PARTS == 1 || OWN_STATES != 0) state_barrier();
    else if (SPINS != 0) grid_barrier();
}
