"""The kernels for drivers that run shaders on a processor: shaders/cpu/."""
