"""Runs the conformance suite on the Vulkan devices of a machine, and reports the results."""
