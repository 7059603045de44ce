// Runs a phase of a time step. Each invocation computes units of the tile's one row.
layout(constant_id = 70) const uint FUSED = 0;  // whether the time loop multiplies the input, instead of reading `gates`
layout(binding = 0) readonly buffer Gates { uvec4 gates[]; };
layout(binding = 3) readonly buffer HiddenWeights { uvec4 hidden_weights[]; };

// Loads a unit's biases that are not in the input's part (which = 0), or its peephole weights (which = 1).
real4 hidden_extra(uint which, uint unit)
{
    uint end_of_weights = DIRECTIONS * HIDDEN_LOADS * GATES * UNITS;
    return GET_REAL4(hidden_weights, end_of_weights + (which * DIRECTIONS + direction) * UNITS + unit);
}

real4 input_part(uint phase, uint step, uint unit)
{
    if (FUSED != 0) {
        uint x_start = x_start_of(direction, step, length_of(0), first_row);
        return multiply_input(x_start, direction, first_gate(phase), end_gate(phase), unit);
    }
    return GET_REAL4(gates, (((step - dispatch.gates_step) * DIRECTIONS + direction) * dispatch.batch + first_row) * UNITS + unit);
}

real4 multiply_hidden(uint phase, uint unit)
{
    real4 sums = hidden_extra(0, unit);
    uint start = direction * HIDDEN_LOADS * GATES * UNITS + unit;
    [[dont_unroll]] for (uint load = 0; load < HIDDEN_LOADS; ++load) {
        real4 h = load_state_vec(source, load);
        [[unroll]] for (uint gate = first_gate(phase); gate < end_gate(phase); ++gate)
            add_dot(sums, gate, h, GET_REAL4(hidden_weights, start + (load * GATES + gate) * UNITS));
    }
    return sums;
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    for (uint first = first_unit; first < end_unit; first += WORKGROUP) {
        uint unit = first + gl_LocalInvocationID.x;
        real4 x = input_part(phase, step, unit);
        real4 recurrent = multiply_hidden(phase, unit);
        if (unit < HIDDEN && step < length_of(0)) {
            if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1, unit);
            finish_phase(phase, step, 0, unit, x, recurrent);
        }
    }
    phase_barrier();
}

void run_step(uint step)
{
    for (uint phase = 0; phase < PHASES; ++phase)  // a loop, so that the long code of run_phase is inlined once
        if (has_phase(phase)) run_phase(phase, step);
}
