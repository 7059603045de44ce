"""What to compute, independent of any device: DirectML's structures, ONNX's arguments, the checks, and a numpy reference."""
