"""DirectML's recurrent operators as Vulkan compute shaders.

Ways in: DirectML's descriptors (`Device`, `DML_GRU_OPERATOR_DESC`, ...), numpy arrays (the functions `gru`, `lstm` and `rnn`,
and the layers `GRU`, `LSTM` and `RNN`, which hold their weights), ONNX models and nodes (`vkdml.onnx`), PyTorch modules
(`vkdml.torch`), PyDirectML scripts (`vkdml.pydirectml`) and the command `vkdml`.
"""

import typing as _typing
from importlib.metadata import version as _version
from types import FunctionType as _FunctionType

from .engine.vulkan.buffers import Buffer
from .errors import (
    DeviceLostError,
    DriverError,
    InvalidArgumentError,
    MissingPackageError,
    NothingOnDeviceWarning,
    OutOfMemoryError,
    VerificationError,
    VkdmlError,
)
from .faces.directml.binding import BindingTable, OperatorInitializer
from .faces.directml.compiled_operator import CompiledGraph, CompiledOperator, Operator
from .faces.directml.device import Device
from .faces.directml.recorder import CommandRecorder
from .faces.functional import gru, lstm, rnn
from .faces.layers import GRU, LSTM, RNN, Stream
from .operators.checks import OPERATOR_TYPES as _OPERATOR_TYPES
from .operators.header import c_names, descs, device_descs
from .operators.header.c_names import DMLCalcBufferTensorSize
from .operators.header.descs import *  # noqa: F403  (the DML_* names that it lists)
from .operators.header.device_descs import *  # noqa: F403
from .planning.device_info import DeviceInfo
from .planning.options import Options
from .planning.plan import OperatorMemory

__version__ = _version("vkdml")

__all__ = ["GRU", "LSTM", "RNN", "BindingTable", "Buffer", "CommandRecorder", "CompiledGraph", "CompiledOperator",
           "DMLCalcBufferTensorSize", "Device", "DeviceInfo", "DeviceLostError", "DriverError", "InvalidArgumentError",
           "MissingPackageError", "NothingOnDeviceWarning", "Operator", "OperatorInitializer",
           "OperatorMemory", "Options", "OutOfMemoryError", "Stream", "VerificationError", "VkdmlError", "gru", "lstm", "rnn"]
__all__ += descs.NAMES + device_descs.NAMES

globals().update(c_names.CONSTANTS)
__all__ += list(c_names.CONSTANTS)


def _publish(module: dict[str, _typing.Any]) -> None:
    """Make classes and functions name the public module that lists them, for pickles and messages. Inner modules may change."""
    for name in module["__all__"]:
        if isinstance(found := module[name], type | _FunctionType) and found.__module__.startswith(f"{__name__}."):
            if isinstance(found, type):  # while their names can be found where they are written
                hints = _typing.get_type_hints(found)
                found.__annotations__ = {of: hints[of] for of in vars(found).get("__annotations__", ())}
            found.__module__ = module["__spec__"].name


_publish(globals())

_INSTEAD = {  # by a part of a name that programs for DirectML use
    "DMLCreateDevice": "; here it is Device()", "DML_CREATE_DEVICE_FLAG_": "; Device() takes no flags",
    "IDML": "; here it has no prefix, such as Device and CompiledOperator",
    "OPERATOR": "; it has " + ", ".join(structure.__name__ for structure in _OPERATOR_TYPES),
    "DML_": "; docs/faces/directml-api.md lists what is here"}

if not _typing.TYPE_CHECKING:
    def __getattr__(name: str) -> None:
        hint = next((hint for part, hint in _INSTEAD.items() if part in name), "")
        raise AttributeError(f"module 'vkdml' has no attribute {name!r}{hint}")
