"""Running it: Vulkan's devices, buffers, kernels, submissions, and DirectML's objects on them."""
