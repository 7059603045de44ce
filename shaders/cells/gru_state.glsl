// A GRU has no state beside h.
