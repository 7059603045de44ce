"""What vkdml does when the driver fails: a Vulkan layer that makes chosen calls fail, and a process that tries them in turn."""
