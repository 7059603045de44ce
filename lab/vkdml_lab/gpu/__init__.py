"""What real GPUs' compilers make of the kernels, on machines without a GPU. `python -m vkdml_lab.gpu.check` is the way in."""
