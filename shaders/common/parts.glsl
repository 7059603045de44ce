// The main function of kernels that run in two schedules. PARTS workgroups share a tile's units:
// - PARTS == 1, *sequence*: one workgroup runs all steps of the chunk.
// - PARTS > 1, *stepped*: a dispatch runs one phase of one step; the dispatch before them writes the initial state.
// Workgroups: x tiles, y directions, z parts.
layout(constant_id = 65) const uint PARTS = 1;
const bool IS_STEPPED = PARTS > 1;

bool has_phase(uint phase) { return !IS_STEPPED || dispatch.phase == phase; }
bool is_end() { return dispatch.last_step == dispatch.steps; }

void phase_barrier()
{
    if (!IS_STEPPED) state_barrier();
}

void main()
{
    direction = gl_WorkGroupID.y;
    first_row = gl_WorkGroupID.x * ROWS;
    uint tile = direction * dispatch.tiles + gl_WorkGroupID.x;
    tile_state = tile * TILE_VECS;
    first_unit = gl_WorkGroupID.z * PART_UNITS;
    end_unit = min(first_unit + PART_UNITS, HIDDEN);

    uint steps, shortest;
    begin_tile(steps, shortest);
    bool starts = IS_STEPPED ? dispatch.last_step == 0 : dispatch.first_step == 0;
    if (!IS_STEPPED || starts) {
        // The last part also has the padding after the last units.
        bool is_last = first_unit < HIDDEN && end_unit == HIDDEN;
        begin_state(starts, first_unit, is_last ? HIDDEN_VECS * 4 : end_unit);
    }
    for (uint step = dispatch.first_step; step < min(dispatch.last_step, steps); ++step) run_step(step);
    if (IS_STEPPED && (starts || dispatch.phase + 1 < PHASES)) return;
    end_rows(shortest);
}
