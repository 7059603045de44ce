from .faces.onnx import *  # noqa: F403  (the names that it lists)
from .faces.onnx import __all__ as __all__
from .faces.onnx import __doc__ as __doc__
from .faces.onnx import __getattr__ as __getattr__
from .faces.onnx import backend as backend
