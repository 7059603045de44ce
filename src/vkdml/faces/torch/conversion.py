"""From PyTorch's recurrent modules to twins on a Vulkan device, and back."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from ...errors import InvalidArgumentError, NothingOnDeviceWarning, shown
from ..directml.device import Device
from ..sessions import open_device
from .modules import TWINS, Twin

Module = TypeVar("Module", bound=nn.Module)


def convert(module: Module, device: Device | int | str | None = None, *, inplace: bool = False,
            training: str = "refuse") -> Module:
    """Replace every GRU, LSTM, RNN, GRUCell, LSTMCell and RNNCell of a module by a twin that runs on a Vulkan device.

    A twin is a subclass of the module's class, with the same parameters, arguments, results and state_dict. It takes tensors
    on the CPU, or PackedSequences of them, of float32, float16, bfloat16 or float64. It runs in eval mode, and what it returns
    has no gradient: `backward` through it raises an error. Parameters are packed at the first call, and again when they have
    changed.

    Args:
        module: a recurrent module, or a model that contains some.
        device: a Device, or an argument of Device().
        inplace: change the module itself; by default a deep copy is changed.
        training: what calls in training mode do: "refuse" raises an error, "torch" runs PyTorch's own forward on the CPU, with
            dropout and gradients.

    Returns:
        The module with twins.

    Raises:
        InvalidArgumentError: a module is scripted or traced, or of a subclass of a class that has a twin; the message names it.
            Calls of twins raise it in training mode, and for tensors of wrong shapes, types or devices.
        DriverError: no device, or the driver failed.

    Warns with a NothingOnDeviceWarning where the module has no recurrent module.
    """
    _check_module("convert", module)
    if training not in ("refuse", "torch"):
        raise InvalidArgumentError("convert", "training", shown(training), '"refuse" or "torch"')
    open_device("convert", device)  # refuses a wrong one before any change
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise InvalidArgumentError("convert", name or "module", "a scripted or traced module", "one that is not")
        kind = type_before_parametrizations(part)
        if isinstance(part, nn.RNNBase | nn.RNNCellBase) and kind not in (*TWINS, *TWINS.values()):
            raise InvalidArgumentError("convert", name or "module", f"{kind.__name__}, a subclass",
                                       "one of " + ", ".join(cls.__name__ for cls in TWINS))
    module = module if inplace else copy.deepcopy(module)
    for part in module.modules():
        _change_class(part, TWINS)
        if isinstance(part, Twin):
            part.set_device(device)
            part._trains = training == "torch"
    if not any(isinstance(part, Twin) for part in module.modules()):
        warnings.warn(f"convert: nothing of {type(module).__name__} runs on the Vulkan device: it has no module of "
                      + ", ".join(cls.__name__ for cls in TWINS), NothingOnDeviceWarning, stacklevel=2)
    return module


def unconvert(module: Module) -> Module:
    """Make PyTorch's modules of all twins in a module, which is changed itself: it keeps its parameters, hooks and settings.

    Args:
        module: a twin, or a model that contains some.

    Returns:
        The module.

    Raises:
        InvalidArgumentError: it is no module.
    """
    _check_module("unconvert", module)
    for part in module.modules():
        if isinstance(part, Twin):
            part.forget_device()
            _change_class(part, {twin: original for original, twin in TWINS.items()})
    return module


def warm_up(module: nn.Module, T: int | Iterable[int], B: int | Iterable[int] = 1, *, hx: bool = False, packed: bool = False
            ) -> None:
    """`warm_up` of every twin in a module. They all get these lengths, and cells one step."""
    _check_module("warm_up", module)
    for part in module.modules():
        if isinstance(part, Twin):
            part.warm_up(T, B, hx=hx, packed=packed)


def _check_module(name: str, module: object) -> None:
    if not isinstance(module, nn.Module):
        raise InvalidArgumentError(name, "module", type(module).__name__, "a torch.nn.Module")


def _change_class(part: nn.Module, classes: dict[type[nn.Module], type[nn.Module]]) -> None:
    """A parametrized module has a class of its own, with its parametrized tensors as properties: it gets another such class."""
    cls = type(part)
    kind = classes.get(type_before_parametrizations(part))
    if kind is None:
        return
    if is_parametrized(part):
        own = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
        kind = type(cls.__name__, (kind,), own)
    part.__class__ = kind
