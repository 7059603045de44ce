"""ONNX on a Vulkan device: nodes, whole models, and a backend. Needs the extra `onnx`: pip install '.[onnx]'.

`import vkdml.onnx as onnxruntime` runs a script that is written for onnxruntime: all names that are not here are onnxruntime's.

`run_node` runs one recurrent node. `InferenceSession` takes the place of onnxruntime's: a model's GRU, LSTM and RNN nodes run
on the Vulkan device, all other nodes in onnxruntime on the CPU. With `prepare`, `run_model`, `run_node` and `supports_device`,
this module is a backend as onnx.backend.base.Backend describes.

Sources: the ONNX operators GRU, versions 1, 3, 7, 14 and 22, LSTM and RNN, versions 1, 7, 14 and 22.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ...errors import MissingPackageError, install_line

try:
    import onnx as _onnx  # noqa: F401
    import onnxruntime as _onnxruntime
except ImportError as _error:
    raise MissingPackageError(f"vkdml.onnx needs the package {_error.name}: {install_line('onnx')}") from None

from .assignment import AssignedNode, Assignment
from .backend import PreparedModel, VulkanBackend, prepare, run_model, supports_device
from .feeds import IOBinding, NodeArg
from .models import ModelMetadata
from .nodes import run_node
from .session import InferenceSession
from .session_streams import SessionStream

__all__ = ["AssignedNode", "Assignment", "IOBinding", "InferenceSession", "ModelMetadata", "NodeArg", "PreparedModel",
           "SessionStream", "VulkanBackend", "prepare", "run_model", "run_node", "supports_device"]


def __getattr__(name: str) -> Any:
    """onnxruntime's SessionOptions, OrtValue, get_device and so on, and its modules, such as datasets."""
    if name.startswith("__") and name != "__version__":  # such as __path__: this is no package of onnxruntime's modules
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not hasattr(_onnxruntime, name) and find_spec(f"onnxruntime.{name}"):
        import_module(f"onnxruntime.{name}")
    return getattr(_onnxruntime, name)
