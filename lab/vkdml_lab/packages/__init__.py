"""Public packages with recurrent ONNX models, on onnxruntime and on vkdml.onnx: see __main__.py."""
