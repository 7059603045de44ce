"""A device that does whatever Vulkan allows: an interpreter of the kernels' SPIR-V, and checks of what they do on it."""
