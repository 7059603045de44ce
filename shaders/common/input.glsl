// Declares the input X and its packed weights, which the packed biases follow.
layout(constant_id = 5) const uint INPUTS = 1;       // I
layout(constant_id = 9) const uint INPUT_LOADS = 1;  // loads of weights that a row of X is multiplied with
layout(binding = 0) readonly buffer Input { uint x_words[]; };
layout(binding = 1) readonly buffer InputWeights { uvec4 input_weights[]; };

// Returns where a row's X starts at a step. For rows and steps that do not exist it is some place inside X.
uint x_start_of(uint direction, uint step, uint length, uint row)
{
    return (step < length ? time_at(direction, step, length) : 0) * dispatch.input_stride_t
         + min(row, dispatch.batch - 1) * dispatch.input_stride_b;
}
