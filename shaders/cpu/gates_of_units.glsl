// Loads the input's part of the gates, which a projection stored in the layout of packed.glsl.
layout(binding = 0) readonly buffer Gates { uvec4 gates[]; };

vec4 load_gates(uint step, uint r, uint unit)
{
    uint row = min(row_of(r), dispatch.batch - 1);
    return uintBitsToFloat(gates[gates_place(gates_start(step - dispatch.gates_step, direction, row), unit)]);
}
