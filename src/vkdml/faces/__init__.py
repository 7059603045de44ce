"""The ways in for callers: numpy functions, ONNX models, PyTorch modules, PyDirectML scripts."""
