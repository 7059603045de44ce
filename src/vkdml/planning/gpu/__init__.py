"""The kernels for GPUs: shaders/gpu/."""
