layout(binding = 3) readonly buffer HiddenWeights { uvec4 hidden_weights[]; };

// What is packed behind the recurrent weights: 0, the biases that must stay apart from the input's; 1, the peephole weights
vec4 hidden_extra(uint which, uint unit)
{
    uint i = DIRECTIONS * HIDDEN_LOADS * GATES * UNITS + (which * DIRECTIONS + direction) * UNITS + unit;
    return uintBitsToFloat(hidden_weights[whole(i)]);
}
