"""ONNX on a Vulkan device: an execution provider for onnxruntime, nodes, and a backend. Needs the extra `onnx`.

To import this module makes VkdmlExecutionProvider known to onnxruntime: in any session that names it, GRU, LSTM and RNN nodes
run on the Vulkan device, and all other nodes in onnxruntime. `import vkdml.onnx as onnxruntime` runs a script that is written
for onnxruntime: names that are not here are onnxruntime's, and its `InferenceSession` has the provider where none is named.

`prefer()` does that for sessions that packages make. `run_node` runs one recurrent node. With `prepare`, `run_model`,
`run_node` and `supports_device`, this module is a backend as onnx.backend.base.Backend describes.
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
from .backend import VulkanBackend, prepare, run_model, run_node, supports_device
from .exchange import register as _register
from .provider import Provider as _Provider  # noqa: F401  (the extension calls it)
from .session import InferenceSession, get_available_providers, prefer
from .session_streams import SessionStream

_register()

__all__ = ["AssignedNode", "Assignment", "InferenceSession", "SessionStream", "VulkanBackend", "get_available_providers",
           "prefer", "prepare", "run_model", "run_node", "supports_device"]


def __getattr__(name: str) -> Any:
    """onnxruntime's SessionOptions, OrtValue, get_device and so on, and its modules, such as datasets."""
    if name.startswith("__") and name != "__version__":  # such as __path__: this is no package of onnxruntime's modules
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not hasattr(_onnxruntime, name) and find_spec(f"onnxruntime.{name}"):
        import_module(f"onnxruntime.{name}")
    return getattr(_onnxruntime, name)
