// An RNN has no state beside h.
