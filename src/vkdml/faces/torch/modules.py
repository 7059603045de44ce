"""Twins of PyTorch's recurrent modules: `convert`, and the checks and conversions of their arguments and results."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ...errors import InvalidArgumentError
from ...runtime.fork import Lock
from ...runtime.operator import Device
from ...runtime.recent import Recent
from ...runtime.weights import WeightKeeper
from ...spec.element_types import ElementType
from ..sessions import open_device, shapes_to_warm_up
from .stacks import ELEMENTS, KINDS, Layer, Parameters, Shape, Stack, to_numpy, to_torch

_STACKS_KEPT = 64  # networks of a module, for the shapes that were called last: each is a recording of commands

Module = TypeVar("Module", bound=nn.Module)
States = tuple[Tensor, ...]


def convert(module: Module, device: Device | int | str | None = None, *, inplace: bool = False) -> Module:
    """Replace every GRU, LSTM, RNN, GRUCell, LSTMCell and RNNCell of a module by a twin that runs on a Vulkan device.

    A twin is a subclass of the module's class, with the same parameters, arguments, results and state_dict. It takes tensors
    on the CPU, or PackedSequences of them, of float32, float16, bfloat16 or float64. It runs only in eval mode and without
    autograd. Parameters are packed at the first call, and again when they have changed.

    Args:
        module: a recurrent module, or a model that contains some.
        device: a Device, or an argument of Device().
        inplace: change the module itself; by default a deep copy is changed.

    Returns:
        The module with twins.

    Raises:
        InvalidArgumentError: a module is scripted or traced, or of a subclass of a class that has a twin; the message names it.
            Calls of twins raise it in training mode, when autograd would record, and for tensors of wrong shapes, types or
            devices.
        DriverError: no device, or the driver failed.
    """
    if not isinstance(module, nn.Module):
        raise InvalidArgumentError("convert", "module", type(module).__name__, "a torch.nn.Module")
    open_device("convert", device)  # refuses a wrong one before any call
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise InvalidArgumentError("convert", name or "module", "a scripted or traced module", "one that is not")
        if isinstance(part, nn.RNNBase | nn.RNNCellBase) and type(part) not in (*_TWINS, *_TWINS.values()):
            raise InvalidArgumentError("convert", name or "module", f"{type(part).__name__}, a subclass",
                                       "one of " + ", ".join(cls.__name__ for cls in _TWINS))
    module = module if inplace else copy.deepcopy(module)
    for part in module.modules():
        if type(part) in _TWINS:
            part.__class__ = _TWINS[type(part)]
        if isinstance(part, _Twin):
            part._device = device
    return module


def warm_up(module: nn.Module, T: int | Iterable[int], B: int | Iterable[int] = 1, *, hx: bool = False, packed: bool = False
            ) -> None:
    """`warm_up` of every twin in a module. They all get these lengths, and cells one step."""
    if not isinstance(module, nn.Module):
        raise InvalidArgumentError("warm_up", "module", type(module).__name__, "a torch.nn.Module")
    for part in module.modules():
        if isinstance(part, _Twin):
            part.warm_up(T, B, hx=hx, packed=packed)


class _Twin(nn.Module):
    """_device: what `convert` was given."""

    _device: Device | int | str | None

    @property
    def vulkan_device(self) -> int:
        """The index of the device."""
        device = self._device
        return (device if isinstance(device, Device) else open_device(type(self).__name__, device)).info.index

    def _layers(self) -> list[Layer]:
        raise NotImplementedError

    def warm_up(self, T: int | Iterable[int], B: int | Iterable[int] = 1, *, hx: bool = False, packed: bool = False) -> None:
        """Pack the parameters and compile all that calls with these lengths and batches need: they compile nothing then.

        Lengths of about the same size share what is compiled, so a few of them are enough for a range.

        Args:
            T: time steps: a number, or several, such as range(10, 200, 10).
            B: batch rows: likewise. Each length is prepared with each batch size.
            hx: whether the calls will give initial states.
            packed: whether they will give PackedSequences.

        Raises:
            InvalidArgumentError: no whole number from 1, or a module in training mode or on another device.
            DriverError: the driver failed.
        """
        name, layers = type(self).__name__, self._layers()
        shapes = shapes_to_warm_up(name, T, B)
        with torch.no_grad():
            element = self._check_tensors({}, layers)
        for t, b in shapes:
            shape = Shape(t, b, self.input_size, self.hidden_size, element, hx, packed)
            with self._prepared(layers, shape) as (stack, parameters):
                stack.prepare(parameters)

    @contextmanager
    def _prepared(self, layers: Sequence[Layer], shape: Shape) -> Iterator[tuple[Stack, Parameters]]:
        """What a call of this shape runs. Meanwhile other threads wait."""
        compiled = _compiled.setdefault(self, _Compiled())
        device = open_device(type(self).__name__, self._device)
        with compiled.lock:
            compiled.parameters.update(layers)
            stack = compiled.stacks.get((shape, device), lambda: Stack(layers, shape, device, compiled.keeper))
            yield stack, compiled.parameters

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, vulkan_device={self.vulkan_device}"

    @torch.compiler.disable
    def _run(self, input: Tensor, states: States, lengths: Tensor | None = None) -> tuple[Tensor, States]:
        """input: [T, B, I]. lengths: [B]. Returns y [T, B, D * H] and the last states, [layers * D, B, H] each."""
        name, layers = type(self).__name__, self._layers()
        tensors = {"input": input} | {f"hx[{index}]": state for index, state in enumerate(states)}
        element = self._check_tensors(tensors, layers)
        t, b = input.shape[:2]
        if 0 in input.shape:
            raise InvalidArgumentError(name, "input", f"the shape {tuple(input.shape)}", "no dimension of 0")
        shape = Shape(t, b, self.input_size, self.hidden_size, element, bool(states), lengths is not None)
        with self._prepared(layers, shape) as (stack, parameters):
            y, last = stack.run(name, parameters, to_numpy(input), [to_numpy(state) for state in states],
                                None if lengths is None else lengths.numpy())
        return to_torch(y), tuple(map(to_torch, last))

    def _states(self, hx: Any, count: int) -> States:
        """The initial states in hx: as many as count, or none."""
        if hx is None:
            return ()
        states = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        if len(states) != count or not all(isinstance(state, Tensor) for state in states):
            found = ", ".join(type(state).__name__ for state in states) or "none"
            raise InvalidArgumentError(type(self).__name__, "hx", found, "a Tensor" if count == 1 else f"{count} Tensors")
        return states

    def _check_tensors(self, tensors: Mapping[str, Tensor], layers: Sequence[Layer]) -> ElementType:
        """The element type that all share. Refuses training, tracing, autograd, tensors that are not on the CPU, and parameters
        of other shapes than the module's.
        """
        name = type(self).__name__
        parameters = {key: tensor for layer in layers for key, tensor in layer.named_parameters()}
        if self.training:
            raise InvalidArgumentError(name, "training", True, "False: call .eval() first; twins are for inference")
        if torch.jit.is_tracing():
            raise InvalidArgumentError(name, "torch.jit.trace", "tracing", "none: trace or export the module before convert")
        everything = {**tensors, **parameters}
        for argument, tensor in everything.items():
            if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout is not torch.strided:
                found = f"a {type(tensor).__name__}, {getattr(tensor, 'layout', 'no tensor')}"
                raise InvalidArgumentError(name, argument, found, "a dense Tensor; trace or export before convert")
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in everything.values()):
            raise InvalidArgumentError(name, "autograd", "enabled", "torch.inference_mode() or torch.no_grad() around the "
                                       "call; twins are for inference")
        dtype = next(iter(parameters.values())).dtype
        for argument, tensor in everything.items():
            if tensor.device.type != "cpu":
                raise InvalidArgumentError(name, argument, f"a tensor on {tensor.device}", "one on the CPU")
            if tensor.dtype is not dtype:
                raise InvalidArgumentError(name, argument, tensor.dtype, f"{dtype}, as the parameters")
        element = ELEMENTS.get(dtype)
        if element is None:
            raise InvalidArgumentError(name, "parameters", dtype, "one of " + ", ".join(map(str, ELEMENTS)))
        for layer in layers:
            layer.check_shapes(name)
        return element


class _Compiled:
    """What a twin's calls have compiled and packed. Not an attribute of the twin, so that twins can be copied and saved."""

    def __init__(self) -> None:
        self.parameters = Parameters()
        self.keeper = WeightKeeper()
        self.stacks: Recent[Stack] = Recent(_STACKS_KEPT)
        self.lock = Lock()


_compiled: weakref.WeakKeyDictionary[_Twin, _Compiled] = weakref.WeakKeyDictionary()


class _Sequence(_Twin, nn.RNNBase):
    """GRU, LSTM and RNN."""

    def _forward(self, input: Tensor | PackedSequence, states: States) -> tuple[Any, States]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, states)
        if not isinstance(input, Tensor):
            raise InvalidArgumentError(type(self).__name__, "input", type(input).__name__, "a Tensor or a PackedSequence")
        if input.dim() not in (2, 3):
            raise InvalidArgumentError(type(self).__name__, "input", f"{input.dim()} dimensions", "2 or 3")
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
        states = _permuted(states, order)
        self._check_shapes(data, states, batch_sizes)
        padded, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes))
        y, last = self._run(padded, states, lengths)
        return PackedSequence(pack_padded_sequence(y, lengths).data, batch_sizes, order, back), _permuted(last, back)

    def _check_shapes(self, input: Tensor, states: States, batch_sizes: Tensor | None) -> None:
        """Runs PyTorch's own checks."""
        try:
            if states:
                self.check_forward_args(input, states if len(states) > 1 else states[0], batch_sizes)
            else:
                self.check_input(input, batch_sizes)
        except (RuntimeError, ValueError) as error:
            raise InvalidArgumentError(type(self).__name__, "input or hx", str(error), "shapes that PyTorch accepts") from None

    def _layers(self) -> list[Layer]:
        suffixes = ["", "_reverse"] if self.bidirectional else [""]
        wide = len(suffixes) * (self.proj_size or self.hidden_size)
        return [Layer(KINDS[self.mode], self, [f"_l{k}{suffix}" for suffix in suffixes], wide if k else self.input_size)
                for k in range(self.num_layers)]


def _permuted(states: States, order: Tensor | None) -> States:
    return states if order is None else tuple(state.index_select(1, order) for state in states)


class GRU(_Sequence, nn.GRU):
    """torch.nn.GRU on a Vulkan device. Made by `convert`."""

    def forward(self, input: Any, hx: Tensor | None = None) -> Any:
        y, (h,) = self._forward(input, self._states(hx, 1))
        return y, h


class LSTM(_Sequence, nn.LSTM):
    """torch.nn.LSTM on a Vulkan device. Made by `convert`."""

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        return self._forward(input, self._states(hx, 2))


class RNN(_Sequence, nn.RNN):
    """torch.nn.RNN on a Vulkan device. Made by `convert`."""

    def forward(self, input: Any, hx: Tensor | None = None) -> Any:
        y, (h,) = self._forward(input, self._states(hx, 1))
        return y, h


class _Single(_Twin, nn.RNNCellBase):
    """GRUCell, LSTMCell and RNNCell: a sequence of one step."""

    def _mode(self) -> str:
        raise NotImplementedError

    def warm_up(self, T: int | Iterable[int] = 1, B: int | Iterable[int] = 1, *, hx: bool = False, packed: bool = False
                ) -> None:
        """As that of a GRU. A cell has one step, whatever T says."""
        super().warm_up(1, B, hx=hx)

    def _layers(self) -> list[Layer]:
        return [Layer(KINDS[self._mode()], self, [""], self.input_size)]

    def _forward(self, input: Tensor, states: States) -> States:
        if not isinstance(input, Tensor):
            raise InvalidArgumentError(type(self).__name__, "input", type(input).__name__, "a Tensor")
        if input.dim() not in (1, 2):
            raise InvalidArgumentError(type(self).__name__, "input", f"{input.dim()} dimensions", "1 or 2")
        expected = {"input": (*input.shape[:-1], self.input_size)}
        expected |= {f"hx[{index}]": (*input.shape[:-1], self.hidden_size) for index in range(len(states))}
        for (argument, shape), tensor in zip(expected.items(), (input, *states)):
            if tensor.shape != shape:
                raise InvalidArgumentError(type(self).__name__, argument, f"the shape {tuple(tensor.shape)}", str(shape))
        _, last = self._run(input.reshape(1, -1, self.input_size),
                            tuple(state.reshape(1, -1, self.hidden_size) for state in states))
        return tuple(state.reshape(*input.shape[:-1], self.hidden_size) for state in last)


class GRUCell(_Single, nn.GRUCell):
    """torch.nn.GRUCell on a Vulkan device. Made by `convert`."""

    def _mode(self) -> str:
        return "GRU"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._forward(input, self._states(hx, 1))[0]


class LSTMCell(_Single, nn.LSTMCell):
    """torch.nn.LSTMCell on a Vulkan device. Made by `convert`."""

    def _mode(self) -> str:
        return "LSTM"

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        return self._forward(input, self._states(hx, 2))


class RNNCell(_Single, nn.RNNCell):
    """torch.nn.RNNCell on a Vulkan device. Made by `convert`."""

    def _mode(self) -> str:
        return f"RNN_{self.nonlinearity.upper()}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._forward(input, self._states(hx, 1))[0]


_TWINS: dict[type[nn.Module], type[nn.Module]] = {
    nn.GRU: GRU, nn.LSTM: LSTM, nn.RNN: RNN, nn.GRUCell: GRUCell, nn.LSTMCell: LSTMCell, nn.RNNCell: RNNCell}
