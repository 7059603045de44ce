"""Examines the machine code that GPUs' compilers make of kernels, without a GPU. Begin with python -m vkdml_lab.gpu.check."""
