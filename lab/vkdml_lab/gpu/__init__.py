"""Examines the code that GPUs' compilers make of the kernels, without a GPU. Begin with `python -m vkdml_lab.gpu.check`."""
