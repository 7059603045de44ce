// The schedule *sequence*: a workgroup owns one direction of a tile of rows and runs all steps of the dispatch. Nothing passes
// between workgroups, so one dispatch needs no barrier but the workgroup's own.
// Workgroups: x tiles, y directions.
void phase_barrier() { state_barrier(); }
bool has_phase(uint phase) { return true; }
bool is_end() { return dispatch.last_step == dispatch.steps; }

void main()
{
    direction = gl_WorkGroupID.y;
    first_row = gl_WorkGroupID.x * ROWS;
    tile_state = (direction * dispatch.tiles + gl_WorkGroupID.x) * TILE_VECS;
    first_unit = 0;
    end_unit = HIDDEN;

    uint steps, shortest;
    begin_tile(steps, shortest);
    begin_state(dispatch.first_step == 0, 0, HIDDEN_VECS * 4);
    for (uint step = dispatch.first_step; step < min(dispatch.last_step, steps); ++step) run_step(step);
    end_rows(shortest);
}
