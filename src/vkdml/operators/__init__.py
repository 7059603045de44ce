"""Describes what to compute, for any device: DirectML's structures, ONNX's arguments, the checks, and a numpy reference."""
