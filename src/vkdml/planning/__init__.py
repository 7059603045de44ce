"""Plans how a device computes an operator: facts about devices, tilings, their costs, and dispatches. No Vulkan here."""
