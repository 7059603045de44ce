// The input's part of the gates, as gpu/projection.comp left it: [step][direction][row][unit], a vec4 with a component a gate
layout(binding = 0) readonly buffer Gates { uvec4 gates[]; };

void load_input_part(out vec4 x[ROWS], uint phase, uint step, uint unit)
{
    uint start = ((step - dispatch.gates_step) * DIRECTIONS + direction) * dispatch.batch;
    [[unroll]] for (uint r = 0; r < ROWS; ++r)
        x[r] = uintBitsToFloat(gates[(start + min(row_of(r), dispatch.batch - 1)) * UNITS + unit]);
}
