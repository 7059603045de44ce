"""PyTorch's recurrent modules on a Vulkan device, for inference and training. Needs the extra `torch`.

`convert` replaces the recurrent modules of a model by twins that run on the device. Tensors between the layers of a module stay
on the device.

Sources: torch.nn.GRU, LSTM, RNN, GRUCell, LSTMCell and RNNCell.
"""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar, get_args

from ...errors import MissingPackageError, NothingOnDeviceWarning, TorchArgumentError, install_line, shown

try:
    import torch
except ImportError:
    raise MissingPackageError(f"vkdml.torch needs the package torch: {install_line('torch')}") from None

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations
from torch.overrides import TorchFunctionMode

from ..directml.device import Device
from ..sessions import open_device
from .modules import GRU, LSTM, RNN, TWINS, GRUCell, LSTMCell, RNNCell, Training, Twin
from .torch_operators import graph_stacks, onnx_translations, twin_stacks
from .transfers import same_gpu

__all__ = ["convert", "unconvert", "warm_up", "refresh", "onnx_translations",  # noqa: RUF022  (as the documentation shows them)
           "GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

Module = TypeVar("Module", bound=nn.Module)


def convert(module: Module, device: Device | int | str | None = None, *, inplace: bool = False,
            training: Training = "refuse") -> Module:
    """Replace every GRU, LSTM, RNN, GRUCell, LSTMCell and RNNCell of a module by a twin that runs on a Vulkan device.

    A twin is a subclass of the module's class, with the same parameters, arguments, results and state_dict. It takes tensors
    on its parameters' device, or PackedSequences of them, of float32, float16, bfloat16 or float64. It runs in eval mode, and
    what it returns has no gradient: `backward` through it raises an error. Parameters are packed at the first call, and again
    when they have changed.

    Args:
        module: a recurrent module, or a model that contains some.
        device: a Device, or an argument of Device(); by default the Vulkan device of the GPU that has the parameters, or else
            the default device, which is opened at the first call.
        inplace: change the module itself; by default a deep copy is changed.
        training: what calls in training mode do: "refuse" raises an error; "device" runs forward and backward on the device, in
            float32; "torch" runs PyTorch's own forward. Both have dropout and gradients.

    Returns:
        The module with twins.

    Raises:
        TorchArgumentError: a module is scripted or traced, or of a subclass of a class that has a twin, or was given a function
            that would not run the copy, such as torch.compile(model.forward); the message names it. Calls of twins raise it in
            training mode, and for tensors of wrong shapes, types or devices.
        DriverError: no device, or the driver failed.

    Warns with a NothingOnDeviceWarning where the module has no recurrent module.
    """
    _check_module("convert", module)
    if training not in get_args(Training):
        raise TorchArgumentError("convert", "training", shown(training), " or ".join(map(repr, get_args(Training))))
    if device is None:
        device = next(filter(None, map(same_gpu, {part.device for part in (*module.parameters(), *module.buffers())})), None)
    index = -1 if device is None else open_device("convert", device).info.index  # refuses a wrong one before any change
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise TorchArgumentError("convert", name or "module", "a scripted or traced module", "one that is not")
        kind = type_before_parametrizations(part)
        if isinstance(part, nn.RNNBase | nn.RNNCellBase) and kind not in (*TWINS, *TWINS.values()):
            raise TorchArgumentError("convert", name or "module", f"{kind.__name__}, a subclass",
                                       "one of " + ", ".join(cls.__name__ for cls in TWINS))
    module = module if inplace else _copied(module)
    for name, part in module.named_modules():
        _change_class(name, part, TWINS)
        if isinstance(part, Twin):
            part.set_device(device, index)
            part._trains = training
    _bind_again(module)
    if not any(isinstance(part, Twin) for part in module.modules()):
        warnings.warn(f"convert: nothing of {type(module).__name__} runs on the Vulkan device: it has no module of "
                      + ", ".join(cls.__name__ for cls in TWINS), NothingOnDeviceWarning, stacklevel=2)
    return module


def unconvert(module: Module) -> Module:
    """Turn all twins in a module back into PyTorch's modules, in place. Parameters, hooks and settings stay.

    Args:
        module: a twin, or a model that contains some.

    Returns:
        The module.

    Raises:
        TorchArgumentError: it is no module.
    """
    _check_module("unconvert", module)
    for name, part in module.named_modules():
        if isinstance(part, Twin):
            part.forget_device()
            _change_class(name, part, {twin: original for original, twin in TWINS.items()})
    _bind_again(module)
    return module


def warm_up(module: nn.Module, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1, *, hx: bool = False,
            packed: bool = False) -> None:
    """Call `warm_up` of every twin in a module, with these lengths; cells get one step.

    Warns with a NothingOnDeviceWarning where the module has no twin.
    """
    _check_module("warm_up", module)
    sizes: list[Any] = [list(one) if isinstance(one, Iterator) else one for one in (T, B)]  # each twin reads them
    twins = [part for part in module.modules() if isinstance(part, Twin)]
    for part in twins:
        part.warm_up(*sizes, hx=hx, packed=packed)
    if not twins:
        warnings.warn(f"warm_up: {type(module).__name__} has no twin: give it the module that convert returned",
                      NothingOnDeviceWarning, stacklevel=2)


def refresh(module: nn.Module) -> None:
    """Copy and pack all parameters of twins or of an exported graph again at the next call.

    You need it only after writes that PyTorch does not count: through `.data`, numpy, DLPack or torch.distributed.
    """
    _check_module("refresh", module)
    for owner in (*module.modules(), *module.parameters(), *module.buffers()):
        (graph_stacks if isinstance(owner, Tensor) else twin_stacks).pop(owner, None)


def _check_module(name: str, module: object) -> None:
    if not isinstance(module, nn.Module):
        raise TorchArgumentError(name, "module", type(module).__name__, "a torch.nn.Module")


class _CopiesResults(TorchFunctionMode):
    """A context in which copy.deepcopy also copies tensors that are results with gradients, which PyTorch refuses to copy."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.__deepcopy__ and not args[0].is_leaf:
            return args[0].detach().clone()
        return function(*args, **(kwargs or {}))


def _copied(module: Module) -> Module:
    try:
        with _CopiesResults():
            copied = copy.deepcopy(module)
    except Exception as error:  # raised by any part of the model
        raise TorchArgumentError("convert", "module", f"{type(error).__name__}: {error}", "a module that copy.deepcopy copies; "
                                 "inplace=True changes the module itself") from error
    for part in copied.modules():  # Module.compile() binds it to the original, and RNNBase copies it
        vars(part).pop("_compiled_call_impl", None)
    _check_functions(copied, set(module.modules()))
    return copied


def _held(function: Any) -> Iterator[Any]:
    """Walk through what a function is bound to, its closure and defaults, and what these hold."""
    left, seen = [function], set()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            if isinstance(one, FunctionType):
                left += one.__closure__, one.__defaults__, one.__kwdefaults__
            elif isinstance(one, MethodType | partial | CellType | list | tuple | dict):
                left += gc.get_referents(one)


def _check_functions(copied: nn.Module, originals: set[nn.Module]) -> None:
    """Refuse functions set on modules that hold an original: deepcopy copies no functions, so that the copy would run it."""
    for name, part in copied.named_modules():
        own = {} if type_before_parametrizations(part) in TWINS else vars(part)  # those are dropped
        for attribute, value in own.items():
            if isinstance(value, FunctionType | MethodType | partial) and not originals.isdisjoint(
                    one for one in _held(value) if isinstance(one, nn.Module)):
                raise TorchArgumentError("convert", f"{name}.{attribute}".lstrip("."), "a function that runs the original",
                                         "none: set it after the conversion, or convert with inplace=True")


_FORWARDS = [cls.forward for cls in (*TWINS, *TWINS.values())]


def _bind_again(module: nn.Module) -> None:
    """Replace a recurrent module's forward that another module holds by that of its new class."""
    for part in module.modules():
        for attribute, value in vars(part).items():
            if isinstance(value, MethodType) and value.__func__ in _FORWARDS:
                vars(part)[attribute] = getattr(value.__self__, "forward")  # noqa: B009  (for type checkers)


def _change_class(name: str, part: nn.Module, classes: dict[type[nn.Module], type[nn.Module]]) -> None:
    """Change a module's class. Methods that were replaced on the module are dropped, with a warning: they run its old class.

    A parametrized module has a class of its own, with its parametrized tensors as properties: it gets another such class.
    """
    cls = type(part)
    kind = classes.get(type_before_parametrizations(part))
    if kind is None:
        return
    for mine in [mine for mine in vars(part) if not mine.startswith("__")]:
        if mine in ("_call_impl", "_slow_forward") or getattr(kind, mine, None) is not getattr(nn.Module, mine, None):
            delattr(part, mine)
            warnings.warn(f"vkdml.torch: {name or 'module'}: {mine} was replaced on this module, and is its class's again: "
                          "replace it after the conversion", stacklevel=3)
    if is_parametrized(part):
        own = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
        kind = type(cls.__name__, (kind,), own)
    part.__class__ = kind
