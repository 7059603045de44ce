// An RNN has no state beside the gradients.
