"""What is to be computed: DirectML's structures, ONNX's words, the checks, and the answer in numpy. Knows no device."""
