"""The device: kp, its driver, buffers, kernels and what is kept on it."""
