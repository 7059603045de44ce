// Runs a phase of a time step in invocations whose weights stay in private memory (resident_weights.glsl).

// Returns values[u] without an index by a variable, which would put the array into memory.
vec4 of_unit(vec4 values[UNITS_AT_ONCE], uint u)
{
    vec4 value = values[0];
    [[unroll]] for (uint k = 1; k < UNITS_AT_ONCE; ++k) value = mix(value, values[k], bvec4(u == k));
    return value;
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    ROW_LOOP for (uint r = 0; r < ACTIVE_ROWS; ++r) {
        vec4 sums[UNITS_AT_ONCE];
        multiply_resident(sums, phase, r);
        ROW_LOOP for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
            uint unit = unit_of(u);
            if (UNITS == HIDDEN || unit < HIDDEN) {
                if (HAS_PEEPHOLE != 0) peephole = of_unit(resident_peepholes, u);
                finish_phase(phase, step, r, unit, load_gates(step, r, unit), of_unit(sums, u));
            }
        }
    }
    phase_barrier();
}

void run_step(uint step)
{
    drop_finished_rows(step);
    if (has_phase(0)) run_phase(0, step);
    if (PHASES == 2 && has_phase(1)) run_phase(1, step);
}

void begin_tile(out uint steps, out uint shortest)
{
    sort_rows(steps, shortest);
    load_resident_weights();
}
