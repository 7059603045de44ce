// The packed input weights, and the packed biases behind them. Bind INPUT_WEIGHTS_BINDING before including.
layout(binding = INPUT_WEIGHTS_BINDING) readonly buffer InputWeights { uvec4 input_weights[]; };

real4 input_bias(uint direction, uint unit)
{
    uint i = DIRECTIONS * INPUT_LOADS * GATES * UNITS + direction * UNITS + unit;
    return GET_REAL4(input_weights, i);
}
