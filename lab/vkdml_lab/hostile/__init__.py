"""The hostile device: an interpreter of SPIR-V that behaves as badly as Vulkan allows a GPU to, and that checks kernels."""
