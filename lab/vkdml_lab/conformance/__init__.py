"""The conformance suite on the Vulkan devices of a machine, and the report of it."""
