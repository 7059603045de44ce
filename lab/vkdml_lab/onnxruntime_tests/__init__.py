"""onnxruntime's own Python tests, on onnxruntime and on vkdml.onnx: see __main__.py."""
