// The input's part of the gates, as gpu/projection.comp left it: [step][direction][row][unit], a vec4 with a component a gate
layout(binding = 0) readonly buffer Gates { uvec4 gates[]; };

vec4 input_part(uint step, uint row)
{
    uint start = ((step - dispatch.gates_step) * DIRECTIONS + direction) * dispatch.batch;
    return uintBitsToFloat(gates[(start + min(row, dispatch.batch - 1)) * UNITS + packed_unit()]);
}
