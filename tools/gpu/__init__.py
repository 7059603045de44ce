"""What real GPUs' compilers make of the kernels, on machines without a GPU. `python -m tools.gpu.check` is the way in."""
