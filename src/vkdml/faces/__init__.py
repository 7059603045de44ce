"""What callers see: numpy functions, ONNX models, PyTorch modules, PyDirectML scripts, DxDispatch's JSON."""
