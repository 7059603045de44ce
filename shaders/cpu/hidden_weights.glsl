layout(binding = 3) readonly buffer HiddenWeights { uvec4 hidden_weights[]; };

// Loads a unit's biases that are not in the input's part (which = 0), or its peephole weights (which = 1).
vec4 hidden_extra(uint which, uint unit)
{
    uint i = DIRECTIONS * HIDDEN_LOADS * GATES * UNITS + (which * DIRECTIONS + direction) * UNITS + unit;
    return uintBitsToFloat(hidden_weights[whole(i)]);
}
