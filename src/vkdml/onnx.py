"""The public name of faces/onnx: ONNX nodes and models."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .faces.onnx import *  # noqa: F403  (the names that it lists)
else:
    from .faces import onnx

    sys.modules[__name__] = onnx
