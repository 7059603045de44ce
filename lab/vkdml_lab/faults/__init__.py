"""Failures of drivers: a Vulkan layer that makes chosen calls fail, and a process that tries such faults one by one."""
