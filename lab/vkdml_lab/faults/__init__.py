"""Lets chosen Vulkan calls fail (faults), by a layer between vkdml and the driver, and tries such faults one by one."""
