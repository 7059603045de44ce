// What the backward cells share. They run from a forward cell's last step to its first. The projection computes the arguments
// of the forward gates again, from x and the h before the step. R multiplies the gradients that the loop computed one step
// later, of all gates. `saved` has for each step the gradient of its h from outside and, in a GRU, the h before the step; in
// an LSTM, the c before it.
layout(binding = 13) readonly buffer Saved { uint saved[]; };

// Returns the slope of an activation whose result is y.
float slope(uint which, float y)
{
    uint id = AT_PLACE(ACTIVATION, which);
    return id == SIGMOID ? y * (1.0 - y) : id == TANH ? 1.0 - y * y : y > 0.0 ? 1.0 : 0.0;
}

float load_saved(uint part, uint unit)
{
    return LOAD_ELEMENT(saved, time_now * dispatch.saved_stride_t + PLACE_OF(saved, row_now, part * HIDDEN + unit));
}

uint first_gate(uint phase) { return 0; }
uint end_gate(uint phase) { return 1; }
uint source_slot(uint phase, uint slot_of_h) { return slot_of_h; }
