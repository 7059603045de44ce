"""PyTorch operators that run a recurrent module's layers on a Vulkan device: torch.ops.vkdml.gru, lstm, rnn_tanh and rnn_relu.

All twins call them, so they are what stands in a graph that is traced, exported or compiled from a twin. Their arguments:

    input: [T, B, I]; with batch_sizes the data of a PackedSequence, [sum of its lengths, I].
    hx: none, h, or h and c, [layers * directions, B, size] each.
    weights: those of all layers, in PyTorch's order.
    batch_sizes: those of a PackedSequence, whose rows are sorted by length.
    module: the module's class, for errors.
    input_size, hidden_size, num_layers, bidirectional: as the module's.
    device: the index of the Vulkan device.

They return y, [T, B, directions * size], or the data of a PackedSequence, and the last h, and c of an LSTM.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.weak import WeakTensorKeyDictionary

from ...engine.vulkan.store import Recent
from ...engine.vulkan.system import Lock
from ...errors import InvalidArgumentError, MissingPackageError
from ...operators.element_types import ElementType
from ..directml.device import Device
from ..sessions import open_device
from .stacks import ELEMENTS, KINDS, Form, Kind, Layer, Parameters, Shape, Stack, layers_of, to_numpy, to_torch

_STACKS_KEPT = 64  # executions of a module, for the shapes that were called last: each is a recording of commands

States = tuple[Tensor, ...]


def untraced(function: Callable[..., States]) -> Callable[..., States]:
    """torch.compiler.disable, once PyTorch's compiler is loaded: it would load that compiler, which takes a second."""
    if "torch._dynamo" not in sys.modules:
        return function
    if function not in _untraced:
        _untraced[function] = torch.compiler.disable(function)
    return _untraced[function]


_untraced: dict[Callable[..., States], Callable[..., States]] = {}


class Compiled:
    """What calls with the same weights have compiled and packed."""

    def __init__(self, index: int, device: Device | int | str | None) -> None:
        """device: the one to use where operators say `index`."""
        self.index, self._device = index, device
        self._parameters = Parameters()
        self.stacks: Recent[Stack] = Recent(_STACKS_KEPT)
        self._lock = Lock()

    @contextmanager
    def prepared(self, module: str, layers: Sequence[Layer], shape: Shape) -> Iterator[tuple[Stack, Parameters]]:
        """What a call of this shape runs. Meanwhile other threads wait."""
        device = open_device(module, self._device)
        with self._lock:
            self._parameters.update(layers)
            key = (shape, device, *(layer.key for layer in layers))
            yield self.stacks.get(key, lambda: Stack(layers, shape, device, self._parameters)), self._parameters


_compiled = WeakTensorKeyDictionary()  # key: the first of the weights, where no twin calls
_lock = Lock()
_calling = threading.local()  # compiled: what the operator that this thread calls uses


def compiled_for(weights: Sequence[Tensor], index: int) -> Compiled:
    """What this call uses, or else belongs to these weights on a device."""
    found: Compiled | None = getattr(_calling, "compiled", None)
    if found is None:
        with _lock:
            found = _compiled.get(weights[0])
            if found is None or found.index != index:
                found = _compiled[weights[0]] = Compiled(index, index)
    return found


def call_with(compiled: Compiled, mode: str, *arguments: Any) -> States:
    """Call an operator, which uses this. A weak reference to a parameter would keep PyTorch from swapping it for another."""
    before = getattr(_calling, "compiled", None)
    _calling.compiled = compiled
    try:
        return OPERATORS[mode](*arguments)
    finally:
        _calling.compiled = before


def check_tensors(module: str, tensors: Mapping[str, Tensor], layers: Sequence[Layer]) -> ElementType:
    """The element type that all tensors and the layers' parameters share.

    Refuses others than dense ones on the CPU, and parameters of other shapes than the module's.
    """
    parameters = [named for layer in layers for named in layer.named]
    dtype = parameters[0][1].dtype
    for argument, tensor in (*tensors.items(), *parameters):
        if tensor.layout is not torch.strided:
            raise InvalidArgumentError(module, argument, f"a Tensor, {tensor.layout}", "a dense Tensor")
        if not tensor.is_cpu:
            raise InvalidArgumentError(module, argument, f"a tensor on {tensor.device}", "one on the CPU")
        if tensor.dtype is not dtype:
            raise InvalidArgumentError(module, argument, tensor.dtype, f"{dtype}, as the parameters")
    element = ELEMENTS.get(dtype)
    if element is None:
        raise InvalidArgumentError(module, "parameters", dtype, "one of " + ", ".join(map(str, ELEMENTS)))
    for layer in layers:
        layer.check_shapes()
    return element


def _run(mode: str, input: Tensor, hx: Sequence[Tensor], weights: Sequence[Tensor], batch_sizes: Tensor | None, *rest: Any
         ) -> States:
    form, device = Form(*rest[:-1]), rest[-1]
    layers = layers_of(mode, form, weights)
    element = check_tensors(form.module, _named(input, hx), layers)
    if input.shape[-1] != form.input_size or len(input) == 0:
        raise InvalidArgumentError(form.module, "input", f"the shape {tuple(input.shape)}",
                                   f"at least one time step, and {form.input_size} as the last size")
    rows = input.shape[1] if batch_sizes is None else _rows_of_packed(form.module, batch_sizes, len(input))
    shapes = _state_shapes(mode, form, weights, rows)
    for index, (state, expected) in enumerate(zip(hx, shapes)):
        if state.shape != expected:
            raise InvalidArgumentError(form.module, f"hx[{index}]", f"the shape {tuple(state.shape)}", str(expected))
    if rows == 0:
        return _empty(input, form, shapes)
    lengths = None
    if batch_sizes is not None:
        input, lengths = pad_packed_sequence(PackedSequence(input, batch_sizes))
    shape = Shape(len(input), rows, form.input_size, form.hidden_size, element, bool(hx), lengths is not None)
    with compiled_for(weights, device).prepared(form.module, layers, shape) as (stack, parameters):
        y, last = stack.run(form.module, parameters, to_numpy(input), [to_numpy(state) for state in hx],
                            None if lengths is None else lengths.numpy())
    y = to_torch(y)
    return y if lengths is None else pack_padded_sequence(y, lengths).data, *map(to_torch, last)


def _rows_of_packed(module: str, batch_sizes: Tensor, count: int) -> int:
    """How many rows a PackedSequence of so many items has. Refuses what is none."""
    sizes = batch_sizes.tolist() if batch_sizes.is_cpu and batch_sizes.dtype is torch.int64 and batch_sizes.dim() == 1 else []
    if not sizes or sizes[-1] < 1 or sum(sizes) != count or any(size < after for size, after in pairwise(sizes)):
        raise InvalidArgumentError(module, "batch_sizes", sizes or batch_sizes,
                                   f"whole numbers from 1 that never grow, {count} together")
    return sizes[0]


def _fake(mode: str, input: Tensor, hx: Sequence[Tensor], weights: Sequence[Tensor], batch_sizes: Tensor | None, *rest: Any
          ) -> States:
    """What a call returns, as PyTorch's compilers see it."""
    form = Form(*rest[:-1])
    if any(tensor.device != input.device for tensor in (*hx, *weights)):
        check_tensors(form.module, _named(input, hx), layers_of(mode, form, weights))
    rows = input.shape[1]
    if batch_sizes is not None:  # their values are not known here
        rows = hx[0].shape[1] if hx else torch.library.get_ctx().new_dynamic_size()
    return _empty(input, form, _state_shapes(mode, form, weights, rows))


def _named(input: Tensor, hx: Sequence[Tensor]) -> dict[str, Tensor]:
    return {"input": input} | {f"hx[{index}]": state for index, state in enumerate(hx)}


def _state_shapes(mode: str, form: Form, weights: Sequence[Tensor], rows: int) -> list[tuple[int, int, int]]:
    """Shapes of h, and of an LSTM's c, which proj_size does not make smaller."""
    sizes = [weights[1].shape[1], *[form.hidden_size] * (mode == "LSTM")]
    return [(form.num_layers * form.directions, rows, size) for size in sizes]


def _empty(input: Tensor, form: Form, shapes: Sequence[tuple[int, int, int]]) -> States:
    """Tensors like the results, of any contents. shapes: those of the states."""
    y = input.new_empty(*input.shape[:-1], form.directions * shapes[0][2])
    return y, *(input.new_empty(shape) for shape in shapes)


def _no_gradient(ctx: Any, *gradients: Any) -> Any:
    raise _not_differentiable("backward")


def _not_differentiable(how: str) -> InvalidArgumentError:
    return InvalidArgumentError("vkdml.torch", how, "a converted module in what is differentiated",
                                "none: torch.no_grad() or detached tensors for inference; convert(..., "
                                "training=\"torch\") and .train() to train")


def _no_vmap(*arguments: Any) -> Any:
    raise InvalidArgumentError("vkdml.torch", "vmap", "a converted module in what is vectorized",
                               "none: one call with all as rows of a batch, or a call for each")


def _check_derivatives(input: Tensor, hx: Sequence[Tensor], weights: Sequence[Tensor], *_: Any) -> None:
    """Refuses forward mode, of which PyTorch would make zeros, and torch.func, with a message of our own."""
    tensors = (input, *hx, *weights)
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise _not_differentiable("forward mode")
    if torch._C._are_functorch_transforms_active() and torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        raise _not_differentiable("torch.func")


def _autocast(mode: str, input: Tensor, hx: Sequence[Tensor], weights: Sequence[Tensor], *rest: Any) -> States:
    """Computes in autocast's type, and returns the types that PyTorch's module returns there."""
    dtype = torch.get_autocast_dtype("cpu")
    form, device = Form(*rest[1:-1]), rest[-1]
    lowered = (_lowered(input, dtype), *([_lowered(tensor, dtype) for tensor in tensors] for tensors in (hx, weights)), *rest)
    with torch.autocast("cpu", enabled=False):
        if torch.compiler.is_compiling():
            results = OPERATORS[mode](*lowered)
        else:
            results = call_with(compiled_for(weights, device), mode, *lowered)
    carried = torch.promote_types(dtype, (hx or [input])[-1].dtype)
    return tuple(result.to(carried) if is_carried else result
                 for result, is_carried in zip(results, _carried(mode, form, weights)))


def _lowered(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast as autocast does: what is floating point, but not float64."""
    return tensor if tensor.dtype is torch.float64 or not tensor.is_floating_point() else tensor.to(dtype)


def _carried(mode: str, form: Form, weights: Sequence[Tensor]) -> tuple[bool, ...]:
    """Whether each result has the initial state's type under PyTorch's autocast: not all modules are alike."""
    if mode == "GRU":
        return True, True
    if mode != "LSTM":
        return False, False
    is_cell, is_projected = form.module == "LSTMCell", weights[1].shape[1] != form.hidden_size
    return is_cell, is_cell, is_cell or is_projected


class _Library(torch.library.Library):
    """A library whose operators refuse derivatives: the kernel that register_autograd makes knows backward alone."""

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> Any:
        def checked(keyset: Any, *arguments: Any) -> Any:
            _check_derivatives(*arguments)
            return fn(keyset, *arguments)

        return super().impl(op_name, checked if dispatch_key == "Autograd" else fn, dispatch_key, **options)


_library = _Library("vkdml", "DEF")


def _define(mode: str) -> Any:
    """The operator of one of PyTorch's modes."""
    name, results = mode.lower(), ["Tensor"] * (3 if mode == "LSTM" else 2)
    _library.define(f"{name}(Tensor input, Tensor[] hx, Tensor[] weights, Tensor? batch_sizes, str module, int input_size, "
                    f"int hidden_size, int num_layers, bool bidirectional, int device) -> ({', '.join(results)})",
                    tags=torch.Tag.pt2_compliant_tag)
    _library.impl(name, lambda *arguments: untraced(_run)(mode, *arguments), "CompositeExplicitAutograd")
    _library.impl(name, partial(_autocast, mode), "AutocastCPU")
    _library.impl(name, _no_vmap, "FuncTorchBatched")
    torch.library.register_fake(f"vkdml::{name}", partial(_fake, mode), lib=_library)
    torch.library.register_autograd(f"vkdml::{name}", _no_gradient, lib=_library)
    return getattr(torch.ops.vkdml, name)


OPERATORS = {mode: _define(mode) for mode in KINDS}


# ONNX's GRU, LSTM and RNN for these operators: what torch.onnx.export(dynamo=True) is to make of them

_ACTIVATIONS = {"RNN_TANH": "Tanh", "RNN_RELU": "Relu"}


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Translations to ONNX: torch.onnx.export(..., dynamo=True, custom_translation_table=onnx_translations()).

    Returns:
        For each operator of a twin a function that makes ONNX's operators of it, for any number of steps and rows.

    Raises:
        MissingPackageError: onnxscript is not installed; torch.onnx.export needs it too. The export fails for what ONNX does
            not have, `proj_size` and PackedSequences: an InvalidArgumentError is the cause of PyTorch's error.
    """
    try:
        from onnxscript import opset18
    except ImportError:
        raise MissingPackageError("onnx_translations needs the package onnxscript: pip install onnxscript") from None
    return {operator.default: _translation(opset18, mode) for mode, operator in OPERATORS.items()}


def _translation(op: Any, mode: str) -> Callable[..., Any]:
    """One operator's translation, which PyTorch calls by the names of the operator's arguments. op: the opset."""
    def translated(input: Any, hx: Any, weights: Any, batch_sizes: Any, module: str, input_size: int, hidden_size: int,
                   num_layers: int, bidirectional: bool, device: int) -> Any:
        form = Form(module, input_size, hidden_size, num_layers, bidirectional)
        count = len(weights) // (num_layers * form.directions)
        if count % 2 or batch_sizes is not None:
            found = "proj_size" if count % 2 else "a PackedSequence"
            raise InvalidArgumentError(module, "torch.onnx.export", found, "none: ONNX does not have it")
        return _layers(op, mode, form, input, hx, weights)

    return translated


def _layers(op: Any, mode: str, form: Form, y: Any, hx: Sequence[Any], weights: Sequence[Any]) -> tuple[Any, ...]:
    kind, d, count = KINDS[mode], form.directions, len(weights) // (form.num_layers * form.directions)
    attributes: dict[str, Any] = {"hidden_size": form.hidden_size, "direction": "bidirectional" if d == 2 else "forward"}
    if mode == "GRU":
        attributes["linear_before_reset"] = 1
    if mode in _ACTIVATIONS:
        attributes["activations"] = [_ACTIVATIONS[mode]] * d
    run = getattr(op, mode.partition("_")[0])
    last = []
    for k in range(form.num_layers):
        of_layer = [weights[start:start + count] for start in range(k * d * count, (k + 1) * d * count, count)]
        w, r, *biases = (_stacked(op, kind, form, tensors) for tensors in zip(*of_layer))
        b = op.Concat(*biases, axis=1) if biases else None
        states = [op.Slice(state, [k * d], [(k + 1) * d], [0]) for state in hx]
        y, *ends = run(y, w, r, b, None, *states, **attributes)
        y = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, -1])
        last.append(ends)
    return y, *(op.Concat(*of_layers, axis=0) for of_layers in zip(*last))


def _stacked(op: Any, kind: Kind, form: Form, directions: Sequence[Any]) -> Any:
    """A parameter of all directions, with ONNX's order of gates."""
    rows = np.arange(len(kind.gates) * form.hidden_size).reshape(len(kind.gates), -1)[list(kind.gates)].ravel().tolist()
    return op.Concat(*(op.Unsqueeze(op.Gather(tensor, rows), [0]) for tensor in directions), axis=0)
