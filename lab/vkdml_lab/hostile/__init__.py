"""A hostile device: an interpreter of SPIR-V that does whatever Vulkan allows a GPU, and checks what kernels do on it."""
