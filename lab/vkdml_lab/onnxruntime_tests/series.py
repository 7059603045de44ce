"""onnx's tests of operators, as onnxruntime's series of them chooses and compares: a module that pytest collects."""

import onnx_backend_test_series as series  # type: ignore[import-not-found]

series.create_backend_test()
globals().update({name: value for name, value in vars(series).items() if name.startswith("OnnxBackend")})
