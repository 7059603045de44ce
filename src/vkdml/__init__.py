"""DirectML's recurrent operators as Vulkan compute shaders.

Three ways in: DirectML's descriptors (`Device`, `DML_GRU_OPERATOR_DESC`, ...), numpy arrays (`gru`, `lstm`, `rnn`), and
ONNX nodes (`vkdml.onnx.run_node`).
"""

from importlib.metadata import version as _version

from . import descs
from .descs import *  # noqa: F403  (the DML_* names that it lists)
from .device import Buffer
from .errors import DriverError, InvalidArgumentError, VkdmlError
from .functional import gru, lstm, rnn
from .operator import BindingTable, CommandRecorder, CompiledOperator, Device, Operator, OperatorInitializer
from .schedule import Options
from .vulkan import DeviceInfo

__version__ = _version("vkdml")

__all__ = [
    "BindingTable",
    "Buffer",
    "CommandRecorder",
    "CompiledOperator",
    "Device",
    "DeviceInfo",
    "DriverError",
    "InvalidArgumentError",
    "Operator",
    "OperatorInitializer",
    "Options",
    "VkdmlError",
    "gru",
    "lstm",
    "rnn",
]
__all__ += descs.__all__
