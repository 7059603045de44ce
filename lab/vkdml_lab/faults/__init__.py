"""Driver failures: a Vulkan layer that makes chosen calls fail, and a process that tries them one after the other."""
