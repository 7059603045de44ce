"""How a device computes it: facts about devices, ways to cut a problem, their costs, and the dispatches. No Vulkan here."""
