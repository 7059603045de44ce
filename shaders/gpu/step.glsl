// A phase of a time step on a GPU: each invocation computes a unit, for all rows of the tile.
// Weights lie as [direction][load][gate][unit], so invocations side by side load 16 bytes side by side; behind them, biases.
layout(constant_id = 43) const uint HIDDEN_BLOCK = 1;  // loads of weights for a gate, unrolled: they are under way at once
layout(binding = 3) readonly buffer HiddenWeights { uvec4 hidden_weights[]; };

// which: 0, the recurrent biases that were not added to the input's; 1, the peephole weights
vec4 hidden_extra(uint which, uint unit)
{
    uint end_of_weights = DIRECTIONS * HIDDEN_LOADS * GATES * UNITS;
    return uintBitsToFloat(hidden_weights[end_of_weights + (which * DIRECTIONS + direction) * UNITS + unit]);
}

// sums[r][gate] += dot(h of row r, R of the gate and unit). Each weight that is loaded serves all rows.
void multiply_hidden(inout vec4 sums[ROWS], uint phase, uint unit)
{
    uint start = direction * HIDDEN_LOADS * GATES * UNITS + unit;
    for (uint block = 0; block < HIDDEN_LOADS; block += HIDDEN_BLOCK)
        [[unroll]] for (uint i = 0; i < HIDDEN_BLOCK; ++i) {  // drivers unroll loops that start at a constant
            uint load = block + i;
            uvec4 loaded[GATES];
            [[unroll]] for (uint gate = first_gate(phase); gate < end_gate(phase); ++gate)
                loaded[gate] = hidden_weights[start + (load * GATES + gate) * UNITS];
            [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec)
                [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                    vec4 h = load_state_vec(source, r, load * VECS_PER_LOAD + vec);
                    [[unroll]] for (uint gate = first_gate(phase); gate < end_gate(phase); ++gate)
                        sums[r][gate] += dot(h, unpack_weights(loaded[gate], vec));
                }
        }
}

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    for (uint first = first_unit; first < end_unit; first += WORKGROUP) {
        uint unit = first + gl_LocalInvocationID.x;
        vec4 x[ROWS], recurrent[ROWS], bias = hidden_extra(0, unit);
        load_input_part(x, phase, step, unit);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) recurrent[r] = bias;
        multiply_hidden(recurrent, phase, unit);
        if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1, unit);
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            if (unit < HIDDEN && step < length_of(r)) finish_phase(phase, step, r, unit, x[r], recurrent[r]);
    }
    phase_barrier();
}

void run_step(uint step)
{
    if (has_phase(0)) run_phase(0, step);
    if (PHASES == 2 && has_phase(1)) run_phase(1, step);
}
