"""The kernels for pairs of floats: shaders/float64/."""
