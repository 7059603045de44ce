"""Twins of PyTorch's recurrent modules: conversion of modules to them, and the checks and conversions of their arguments and
results.
"""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations
from torch.nn.utils.rnn import PackedSequence

from ...engine.vulkan.driver import calls
from ...errors import InvalidArgumentError, NothingOnDeviceWarning, shown
from ..directml.device import Device
from ..sessions import open_device, shapes_to_warm_up
from .stacks import Form, Shape, layers_of
from .torch_operators import OPERATORS, Compiled, States, call_with, check_tensors, untraced

Module = TypeVar("Module", bound=nn.Module)


class Twin(nn.Module):
    """A recurrent module on a Vulkan device: the first base of a class that has PyTorch's module as another.

    _module: the name of PyTorch's class. _device: what `convert` was given. _index: the index that it had then. _trains:
    whether PyTorch's own forward runs in training mode.
    """

    _module: str
    _device: Device | int | str | None
    _index: int
    _trains: bool

    @property
    def vulkan_device(self) -> int:
        """The index of the device."""
        device = self._device
        return (device if isinstance(device, Device) else open_device(self._module, device)).info.index

    def forward(self, input: Any, hx: Any = None) -> Any:
        if (self.training and self._trains) or _is_traced_to_onnx():
            return super().forward(input, hx)
        self._check_training()
        return self._on_device(input, self._states(hx))

    def _on_device(self, input: Any, states: States) -> Any:
        raise NotImplementedError

    def _mode(self) -> str:
        """PyTorch's name for what is computed."""
        kind = self._module.removesuffix("Cell")
        return f"RNN_{self.nonlinearity.upper()}" if kind == "RNN" else kind

    def _names(self) -> list[str]:
        """Names of all weights, in PyTorch's order."""
        raise NotImplementedError

    def _weights(self) -> list[Tensor]:
        weights = {name: getattr(self, name, None) for name in self._names()}
        for name, weight in weights.items():
            if not isinstance(weight, Tensor):
                raise InvalidArgumentError(self._module, name, type(weight).__name__, "a parameter")
        return list(weights.values())

    def _form(self) -> Form:
        """What PyTorch's module says of itself; a cell is one layer."""
        layers, bidirectional = getattr(self, "num_layers", 1), getattr(self, "bidirectional", False)
        form = Form(self._module, self.input_size, self.hidden_size, layers, bidirectional)
        for name, value in zip(form._fields[1:], form[1:]):
            if not isinstance(value, int):
                raise InvalidArgumentError(self._module, name, shown(value), "what PyTorch made it")
        return form

    def warm_up(self, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1, *, hx: bool = False,
                packed: bool = False) -> None:
        """Pack the parameters and compile all that calls with these lengths and batches need: they compile nothing then.

        Lengths and batches of about the same size share what is compiled, so a few of them are enough for a range.

        Args:
            T: time steps: a number, or several, such as range(10, 200, 10).
            B: batch rows: likewise. Each length is prepared with each batch size.
            hx: whether the calls will give initial states.
            packed: whether they will give PackedSequences.

        Raises:
            InvalidArgumentError: no T, no whole number from 1, or a module in training mode or on another device.
            DriverError: the driver failed.
        """
        shapes = shapes_to_warm_up(self._module, T, B)
        self._check_training()
        weights = self._weights()
        layers = layers_of(self._mode(), self._form(), weights)
        element = check_tensors(self._module, {}, layers)
        for t, b in shapes:
            shape = Shape(t, b, self.input_size, self.hidden_size, element, hx, packed)
            with self._kept().prepared(self._module, layers, shape) as (stack, _):
                stack.prepare()

    def _kept(self) -> Compiled:
        """What the calls of this twin have in common, with any weights."""
        compiled = _compiled.get(self)
        if compiled is None:
            compiled = _compiled.setdefault(self, Compiled(self._index, self._device))
        return compiled

    def _call(self, *arguments: Any) -> States:
        with calls:
            return call_with(self._kept(), self._mode(), *arguments)

    def set_device(self, device: Device | int | str | None) -> None:
        """Run on this device from now on: a Device, or an argument of Device()."""
        self._device, self._index = device, open_device("convert", device).info.index
        _compiled.pop(self, None)

    def forget_device(self) -> None:
        """Leave nothing that PyTorch's module does not have."""
        del self._device, self._index, self._trains
        _compiled.pop(self, None)

    def __prepare_scriptable__(self) -> Any:
        raise InvalidArgumentError(self._module, "torch.jit.script", "a converted module", "torch.jit.trace or torch.export")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, vulkan_device={self.vulkan_device}"

    def _run(self, input: Tensor, states: States, batch_sizes: Tensor | None = None) -> tuple[Tensor, States]:
        """Run input: [T, B, I], or a PackedSequence's data. Returns y and the last states, [layers * D, B, H] each."""
        call = OPERATORS[self._mode()] if torch.compiler.is_compiling() else partial(untraced(Twin._call), self)
        y, *last = call(input, list(states), self._weights(), batch_sizes, *self._form(), self._index)
        return y, tuple(last)

    def _check_training(self) -> None:
        if self.training:
            raise InvalidArgumentError(self._module, "training", True, "False: call .eval() first; or convert(..., "
                                       "training=\"torch\"), which trains on the CPU")

    def _states(self, hx: Any) -> States:
        """The initial states in hx: h, of an LSTM also c, or none."""
        if hx is None:
            return ()
        states = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        count = 2 if self._mode() == "LSTM" else 1
        if len(states) != count or not all(isinstance(state, Tensor) for state in states):
            found = ", ".join(type(state).__name__ for state in states) or "none"
            raise InvalidArgumentError(self._module, "hx", found, "a Tensor" if count == 1 else f"{count} Tensors")
        return states


def _is_traced_to_onnx() -> bool:
    """Whether PyTorch's exporter, the one that traces, looks for operators that it can make ONNX's GRU, LSTM or RNN of."""
    return torch.jit.is_tracing() and torch.onnx.is_in_onnx_export()


_compiled: weakref.WeakKeyDictionary[Twin, Compiled] = weakref.WeakKeyDictionary()  # no attribute: twins are copied and saved


class _Sequence(Twin, nn.RNNBase):
    """GRU, LSTM and RNN."""

    def _on_device(self, input: Any, states: States) -> Any:
        y, last = self._forward(input, states)
        return y, last if len(last) > 1 else last[0]

    def _forward(self, input: Tensor | PackedSequence, states: States) -> tuple[Any, States]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, states)
        if not isinstance(input, Tensor):
            raise InvalidArgumentError(self._module, "input", type(input).__name__, "a Tensor or a PackedSequence")
        if input.is_nested:
            raise InvalidArgumentError(self._module, "input", "a nested Tensor", "a dense one, or a PackedSequence")
        if input.dim() not in (2, 3):
            raise InvalidArgumentError(self._module, "input", f"{input.dim()} dimensions", "2 or 3")
        if input.dim() == 3:
            self._check_shapes(input, states, None)
            if not self.batch_first:
                return self._run(input, states)
            y, last = self._run(input.transpose(0, 1), states)
            return y.transpose(0, 1), last
        batch = 0 if self.batch_first else 1
        y, last = self._forward(input.unsqueeze(batch), tuple(state.unsqueeze(1) for state in states))
        return y.squeeze(batch), tuple(state.squeeze(1) for state in last)

    def _forward_packed(self, input: PackedSequence, states: States) -> tuple[PackedSequence, States]:
        """The rows of a packed sequence are sorted by length; `order` is the permutation to that order, `back` its inverse."""
        data, batch_sizes, order, back = input
        if order is not None and data.is_cpu and not torch.compiler.is_compiling():
            self._check_order(order, back)
        self._check_shapes(data, states, batch_sizes)
        y, last = self._run(data, _permuted(states, order), batch_sizes)
        return PackedSequence(y, batch_sizes, order, back), _permuted(last, back)

    def _check_order(self, order: Any, back: Any) -> None:
        rows: list[list[Any]] = [one.tolist() if isinstance(one, Tensor) and one.is_cpu else [] for one in (order, back)]
        places = list(range(len(rows[0])))
        if not places or sorted(rows[0]) != places or sorted(rows[1]) != places or [rows[0][row] for row in rows[1]] != places:
            raise InvalidArgumentError(self._module, "sorted_indices", rows[0], "an order of the rows, and unsorted_indices "
                                       "its inverse")

    def _check_shapes(self, input: Tensor, states: States, batch_sizes: Tensor | None) -> None:
        """Runs PyTorch's own checks."""
        try:
            if states:
                self.check_forward_args(input, states if len(states) > 1 else states[0], batch_sizes)
            else:
                self.check_input(input, batch_sizes)
        except (RuntimeError, ValueError, AttributeError) as error:  # AttributeError: a parameter is gone
            raise InvalidArgumentError(self._module, "input or hx", str(error), "what PyTorch accepts") from None

    def _names(self) -> list[str]:
        return self._flat_weights_names


def _permuted(states: States, order: Tensor | None) -> States:
    return states if order is None else tuple(state.index_select(1, order) for state in states)


class GRU(_Sequence, nn.GRU):
    """torch.nn.GRU on a Vulkan device. Made by `convert`."""

    _module = "GRU"


class LSTM(_Sequence, nn.LSTM):
    """torch.nn.LSTM on a Vulkan device. Made by `convert`."""

    _module = "LSTM"


class RNN(_Sequence, nn.RNN):
    """torch.nn.RNN on a Vulkan device. Made by `convert`."""

    _module = "RNN"


class _Single(Twin, nn.RNNCellBase):
    """GRUCell, LSTMCell and RNNCell: a sequence of one step."""

    def warm_up(self, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1, *, hx: bool = False,
                packed: bool = False) -> None:
        """The same as a GRU's. A cell has one step, whatever T says."""
        super().warm_up(1, B, hx=hx)

    def _names(self) -> list[str]:
        return ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * bool(self.bias)

    def _on_device(self, input: Any, states: States) -> Any:
        if not isinstance(input, Tensor):
            raise InvalidArgumentError(self._module, "input", type(input).__name__, "a Tensor")
        if input.dim() not in (1, 2):
            raise InvalidArgumentError(self._module, "input", f"{input.dim()} dimensions", "1 or 2")
        expected = {"input": (*input.shape[:-1], self.input_size)}
        expected |= {f"hx[{index}]": (*input.shape[:-1], self.hidden_size) for index in range(len(states))}
        for (argument, shape), tensor in zip(expected.items(), (input, *states)):
            if tensor.shape != shape:
                raise InvalidArgumentError(self._module, argument, f"the shape {tuple(tensor.shape)}", str(shape))
        rows = 1 if input.dim() == 1 else input.shape[0]  # len() would be a constant in a graph
        _, last = self._run(input.reshape(1, rows, self.input_size),
                            tuple(state.reshape(1, rows, self.hidden_size) for state in states))
        last = tuple(state.reshape(*input.shape[:-1], self.hidden_size) for state in last)
        return last if len(last) > 1 else last[0]


class GRUCell(_Single, nn.GRUCell):
    """torch.nn.GRUCell on a Vulkan device. Made by `convert`."""

    _module = "GRUCell"


class LSTMCell(_Single, nn.LSTMCell):
    """torch.nn.LSTMCell on a Vulkan device. Made by `convert`."""

    _module = "LSTMCell"


class RNNCell(_Single, nn.RNNCell):
    """torch.nn.RNNCell on a Vulkan device. Made by `convert`."""

    _module = "RNNCell"


TWINS: dict[type[nn.Module], type[nn.Module]] = {
    nn.GRU: GRU, nn.LSTM: LSTM, nn.RNN: RNN, nn.GRUCell: GRUCell, nn.LSTMCell: LSTMCell, nn.RNNCell: RNNCell}


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


def warm_up(module: nn.Module, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1, *, hx: bool = False,
            packed: bool = False) -> None:
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
