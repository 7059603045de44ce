"""A hostile device: an interpreter of SPIR-V that does anything that Vulkan allows and checks what kernels do on it."""
