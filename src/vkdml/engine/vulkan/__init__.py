"""The layer around Vulkan and kp: devices, drivers, buffers, kernels, and the store of what is kept on a device."""
