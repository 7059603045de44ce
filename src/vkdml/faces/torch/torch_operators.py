"""PyTorch operators that run a recurrent module's layers on a Vulkan device: torch.ops.vkdml.gru, lstm, rnn_tanh and rnn_relu.

All twins call them, so they appear in graphs that are traced, exported or compiled from a twin. Their arguments:

    input: [T, B, I]; with batch_sizes the data of a PackedSequence, [sum of its lengths, I].
    hx: none, h, or h and c, [layers * directions, B, size] each.
    weights: those of all layers, in PyTorch's order.
    batch_sizes: those of a PackedSequence, whose rows are sorted by length.
    module: the module's class, for errors.
    input_size, hidden_size, num_layers, bidirectional: as the module's.
    device: the index of the Vulkan device.
    lengths: the time steps of each row, from 0 to T: [B], of int32 or int64; or None, for T.

They return y, [T, B, directions * size], or the data of a PackedSequence, and the last h, and c of an LSTM. Wrong arguments
raise a TorchArgumentError before any work, also when PyTorch's compilers trace a call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache, partial, reduce
from itertools import pairwise
from operator import or_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import _C, Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.weak import WeakTensorKeyDictionary

from ...engine.vulkan.store import Recent
from ...engine.vulkan.system import Lock
from ...errors import MissingPackageError, TorchArgumentError
from ..directml.device import Device
from ..sessions import open_device
from .stacks import CPU, KINDS, Form, ModuleParameters, Shape, Stack, check_tensors, device_of, is_certain, layers_of
from .transfers import why_not_shared

_STACKS_KEPT = 64  # how many executions a module keeps, for the latest shapes: each is a recording of commands

States = tuple[Tensor, ...]

# Of tensors that need no more than the kernel for all devices, which these are
_PLAIN_TYPES = {Tensor, nn.Parameter}
_DEVICES = [name for name in ("CPU", "CUDA", "XPU", "MPS", "PrivateUse1") if hasattr(_C.DispatchKey, f"Autocast{name}")]
_PLAIN_KEYS = reduce(or_, [_C.DispatchKeySet(getattr(_C.DispatchKey, key)).raw_repr() for key in (
    "ADInplaceOrView", "BackendSelect", *(part + name for name in _DEVICES for part in ("", "Autograd", "Autocast")))])
_disabled = cache(torch.compiler.disable)  # which loads PyTorch's compiler


def untraced(function: Callable[..., States]) -> Callable[..., States]:
    """Apply torch.compiler.disable only if PyTorch's compiler is loaded: it would load it, which takes a second."""
    return _disabled(function) if "torch._dynamo" in sys.modules else function


class CompiledStacks:
    """The executions and packed weights that calls with the same weights share."""

    def __init__(self, device: Device | int | str | None, is_graphs: bool) -> None:
        self.device = device
        self.parameters = ModuleParameters(is_graphs)
        self.stacks: Recent[Any] = Recent(_STACKS_KEPT)  # and the passes of training on the device
        self.last: tuple[list[Any], Any] = [], None  # what was checked of the last call, and its stack
        self.lock = Lock()  # acquire it to use the others

    def stack(self, form: Form, shape: Shape) -> Stack:
        """Find or make the stack for a call of this form and shape, with the parameters of the last update."""
        device, parameters = open_device(form.module, self.device), self.parameters
        key = (form, len(parameters.layers[0].parameters), parameters.layers[0].width, shape, device)
        found: Stack = self.stacks.get(key, lambda: Stack(form, shape, device, parameters))
        return found


twin_stacks: WeakKeyDictionary[object, CompiledStacks] = WeakKeyDictionary()
graph_stacks = WeakTensorKeyDictionary()  # by the first of a graph's weights
_calling: ContextVar[CompiledStacks | None] = ContextVar("calling", default=None)  # for the operator that this thread calls


def compiled_for(owner: object, device: Device | int | str | None) -> CompiledStacks:
    """Find or make the CompiledStacks of a twin, or of a graph's weights, on a device."""
    stacks = graph_stacks if isinstance(owner, Tensor) else twin_stacks
    found: CompiledStacks | None = stacks.get(owner)
    if found is None or found.device != device:
        found = stacks[owner] = CompiledStacks(device, stacks is graph_stacks)
    return found


class OperatorCall(NamedTuple):
    """An operator's mode and arguments."""

    mode: str
    input: Tensor
    hx: Sequence[Tensor]
    weights: Sequence[Tensor]
    batch_sizes: Tensor | None
    module: str
    input_size: int
    hidden_size: int
    num_layers: int
    bidirectional: bool
    device: int
    lengths: Tensor | None = None

    @property
    def form(self) -> Form:
        return Form(self.mode, self.module, *self[6:10])

    @property
    def compiled(self) -> CompiledStacks:
        """The stacks of the twin that makes the call, or else those of its weights."""
        self.form.per_layer(self.weights)  # refuses an empty list
        return _calling.get() or compiled_for(self.weights[0], None if self.device < 0 else self.device)

    def run_with(self, compiled: CompiledStacks) -> States:
        """Run with these stacks. Parameters cannot be their key: PyTorch swaps none that has a weak reference."""
        if self.is_plain():
            return _run(self, compiled)
        before = _calling.set(compiled)
        try:
            return OPERATORS[self.mode](*self[1:])
        finally:
            _calling.reset(before)

    def is_plain(self) -> bool:
        """Whether PyTorch's dispatcher would only call `_run`: no gradients, transforms, modes, autocast, tracing, profiler."""
        tensors = [self.input, *self.hx, *self.weights, *[one for one in (self.batch_sizes, self.lengths) if one is not None]]
        if (not _PLAIN_TYPES.issuperset(map(type, tensors)) or _C._is_torch_function_mode_enabled()
                or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
                or forward_ad._current_level >= 0 or torch.autograd._profiler_enabled()):
            return False
        keys = _C._dispatch_tls_local_include_set().raw_repr()
        for tensor in tensors:
            keys |= _C._dispatch_keys(tensor).raw_repr()
        return not (keys & ~_PLAIN_KEYS or torch.is_autocast_enabled(self.input.device.type))

    def check(self, width: int | None) -> list[tuple[int, ...]]:
        """Refuse wrong numbers, ranks, sizes, types and devices of tensors. Returns the results' shapes.

        width: y's features, if the weights are checked; None for PyTorch's compilers, whose tensors have no values.
        """
        module, form, input, device, is_fake = self.module, self.form, self.input, device_of(self.weights), width is None
        if width is None:
            devices = {tensor.device for tensor in (input, *self.hx, *self.weights)}
            device = input.device if len(devices) == 1 else device
            width = layers_of(form, self.weights, device)[0].width
        tensors = {"input": input} | {f"hx[{index}]": state for index, state in enumerate(self.hx)}
        check_tensors(module, tensors.items(), self.weights[0].dtype, device)
        sizes = [width // form.directions, *[form.hidden_size] * (self.mode == "LSTM")]
        if len(self.hx) not in (0, len(sizes)):
            raise TorchArgumentError(module, "hx", f"{len(self.hx)} tensors", f"none or {len(sizes)}")
        for name, tensor in tensors.items():
            dimensions = 2 if name == "input" and self.batch_sizes is not None else 3
            if tensor.dim() != dimensions:
                raise TorchArgumentError(module, name, f"{tensor.dim()} dimensions", str(dimensions))
        if is_certain(input.shape[0] == 0):
            raise TorchArgumentError(module, "input", "no time steps", "at least one")
        rows = input.shape[1] if self.batch_sizes is None else self._rows_of_packed(self.batch_sizes, is_fake)
        shapes = [(form.num_layers * form.directions, rows, size) for size in sizes]
        for (name, tensor), shape in zip(tensors.items(), [(form.input_size,), *shapes]):
            for what, found, expected in zip(("features", "rows", "layers and directions"), tensor.shape[::-1], shape[::-1]):
                if is_certain(found != expected):
                    raise TorchArgumentError(module, name, f"{found} {what}", str(expected))
        if self.lengths is not None:
            if self.batch_sizes is not None:
                raise TorchArgumentError(module, "lengths", "lengths of a PackedSequence", "None: it has its own")
            check_lengths(module, self.lengths, input.shape[0], rows, device, is_fake)
        return [(*input.shape[:-1], width), *shapes]

    def _rows_of_packed(self, batch_sizes: Tensor, is_fake: bool) -> int:
        """How many rows a PackedSequence has. Refuses batch sizes that are none."""
        is_list = _is_list(batch_sizes, torch.int64)
        if is_fake and is_list:
            return self.hx[0].shape[1] if self.hx and self.hx[0].dim() == 3 else torch.library.get_ctx().new_dynamic_size()
        sizes = batch_sizes.tolist() if is_list and batch_sizes.is_cpu and not is_fake else []
        if not sizes or sizes[-1] < 1 or sum(sizes) != len(self.input) or any(size < after for size, after in pairwise(sizes)):
            raise TorchArgumentError(self.module, "batch_sizes", sizes or batch_sizes,
                                     f"whole numbers from 1 that never grow, {len(self.input)} together")
        return sizes[0]


def check_lengths(module: str, lengths: Tensor, steps: int, rows: int, device: torch.device, is_fake: bool) -> None:
    """Refuse lengths other than a whole number from 0 to `steps` for each row, on the CPU or the other tensors' device."""
    if (not _is_list(lengths, torch.int64, torch.int32) or lengths.device not in (CPU, device)
            or is_certain(lengths.shape[0] != rows)):
        found = f"{lengths.dtype}, the shape {tuple(lengths.shape)}, on {lengths.device}"
        raise TorchArgumentError(module, "lengths", found, f"int64 or int32, the shape ({rows},), on {device}")
    for row, length in enumerate([] if is_fake else lengths.tolist()):
        if not 0 <= length <= steps:
            raise TorchArgumentError(module, "lengths", f"{length} for row {row}", f"0 to {steps}")


def _is_list(tensor: Tensor, *dtypes: torch.dtype) -> bool:
    return tensor.dim() == 1 and tensor.dtype in dtypes and tensor.layout is torch.strided


def _run(call: OperatorCall, compiled: CompiledStacks | None = None) -> States:
    form, input, lengths, compiled = call.form, call.input, call.lengths, compiled or call.compiled
    with compiled.lock:
        compiled.parameters.update(form, call.weights)
        facts = [compiled.parameters.version, call.weights[0].device, *(
            (one.shape, one.dtype, one.layout, one.device) for one in (input, *call.hx))]
        checked, stack = compiled.last
        is_ragged = lengths is not None or call.batch_sizes is not None  # their values are checked at each call
        if is_ragged or facts != checked or stack.execution.gpu.driver.lost:
            shapes = call.check(compiled.parameters.layers[0].width)
            if (rows := shapes[1][1]) == 0:
                return tuple(map(input.new_empty, shapes))
            if call.batch_sizes is not None:
                input, lengths = pad_packed_sequence(PackedSequence(input, call.batch_sizes))
            elif lengths is not None and input.dtype is torch.float64:  # the range check must ignore padding
                past = torch.arange(len(input), device=input.device)[:, None] >= lengths.to(input.device)
                input = input.masked_fill(past[..., None], 0)
            stack = compiled.stack(form, Shape(len(input), rows, input.dtype, bool(call.hx), lengths is not None,
                                               _is_shared(call, compiled)))
            compiled.last = [] if is_ragged else facts, stack
        y, *last = stack.run(compiled.parameters, input, call.hx, lengths)
    return y if call.batch_sizes is None else pack_padded_sequence(y, lengths).data, *last


def _is_shared(call: OperatorCall, compiled: CompiledStacks) -> bool:
    """Whether tensors pass through shared memory: not where the host checks ranges, or computes states."""
    if call.input.is_cpu or call.input.dtype is torch.float64 or (call.hx and compiled.parameters.layers[0].projected):
        return False
    device = open_device(call.module, compiled.device)
    return not why_not_shared(device.gpu, device.share, call.input.device)


def _fake(mode: str, *arguments: Any, **named: Any) -> States:
    """Make empty tensors in the shapes of a call's results, for PyTorch's compilers."""
    call = OperatorCall(mode, *arguments, **named)
    return tuple(map(call.input.new_empty, call.check(None)))


def _no_gradient(ctx: Any, *gradients: Any) -> Any:
    raise _not_differentiable("backward")


def _not_differentiable(how: str) -> TorchArgumentError:
    return TorchArgumentError("vkdml.torch", how, "a converted module in what is differentiated", "none: torch.no_grad() or "
                              "detached tensors for inference; convert(..., training=\"device\") and .train() to train")


def _no_vmap(*arguments: Any) -> Any:
    raise TorchArgumentError("vkdml.torch", "vmap", "a converted module in what is vectorized",
                             "none: one call with all as rows of a batch, or a call for each")


def _check_derivatives(input: Tensor, hx: Sequence[Tensor], weights: Sequence[Tensor], *_: Any) -> None:
    """Refuse forward-mode derivatives, which PyTorch would return as zeros, and those of torch.func."""
    tensors = (input, *hx, *weights)
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise _not_differentiable("forward mode")
    if _C._are_functorch_transforms_active() and torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        raise _not_differentiable("torch.func")


def _autocast(mode: str, *arguments: Any) -> States:
    """Compute in autocast's type, and return the types that PyTorch's module returns under autocast."""
    call = OperatorCall(mode, *arguments)
    kind = call.input.device.type
    dtype = torch.get_autocast_dtype(kind)
    is_projected = call.form.per_layer(call.weights) % 2 == 1

    def lower(tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype is torch.float64 or not tensor.is_floating_point() else tensor.to(dtype)

    lowered = call._replace(input=lower(call.input), hx=[*map(lower, call.hx)], weights=[*map(lower, call.weights)])
    with torch.autocast(kind, enabled=False):
        results = untraced(OperatorCall.run_with)(lowered, call.compiled)
    if kind != "cpu":
        return results
    # PyTorch's modules differ in which results have the initial state's type
    sizes = call.lengths if call.batch_sizes is None else call.batch_sizes
    all_are = mode == "GRU" or call.module == "LSTMCell" or (mode == "LSTM" and not is_projected and _is_ragged(sizes))
    carried = torch.promote_types(dtype, (*call.hx, call.input)[len(call.hx) - 1].dtype)
    return tuple(result.to(carried) if all_are or (is_projected and index == 2) else result
                 for index, result in enumerate(results))


def _is_ragged(sizes: Tensor | None) -> bool:
    """Whether the rows' lengths differ, 0 counted as 1: if not, PyTorch's LSTM runs a PackedSequence like a Tensor."""
    if sizes is None or torch.compiler.is_compiling():  # compilers do not know the lengths
        return sizes is not None
    return len(set(sizes.clamp(min=1).tolist())) > 1


class _Library(torch.library.Library):
    """A library whose operators refuse derivatives. The kernel that register_autograd makes refuses only backward."""

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> Any:
        def checked(keyset: Any, *arguments: Any) -> Any:
            _check_derivatives(*arguments)
            return fn(keyset, *arguments)

        return super().impl(op_name, checked if dispatch_key == "Autograd" else fn, dispatch_key, **options)


_library = _Library("vkdml", "DEF")


def _define(mode: str) -> Any:
    """Define the operator of one of PyTorch's modes."""
    name, results = mode.lower(), ["Tensor"] * (3 if mode == "LSTM" else 2)
    _library.define(f"{name}(Tensor input, Tensor[] hx, Tensor[] weights, Tensor? batch_sizes, str module, int input_size, "
                    "int hidden_size, int num_layers, bool bidirectional, int device, Tensor? lengths=None) -> "
                    f"({', '.join(results)})", tags=torch.Tag.pt2_compliant_tag)
    _library.impl(name, lambda *arguments: untraced(_run)(OperatorCall(mode, *arguments)), "CompositeExplicitAutograd")
    for device in _DEVICES:
        _library.impl(name, partial(_autocast, mode), f"Autocast{device}")
    _library.impl(name, _no_vmap, "FuncTorchBatched")
    torch.library.register_fake(f"vkdml::{name}", partial(_fake, mode), lib=_library)
    torch.library.register_autograd(f"vkdml::{name}", _no_gradient, lib=_library)
    return getattr(torch.ops.vkdml, name)


OPERATORS = {mode: _define(mode) for mode in KINDS}


# Translations of these operators to ONNX's GRU, LSTM and RNN, for torch.onnx.export(dynamo=True)

_ACTIVATIONS = {"RNN_TANH": "Tanh", "RNN_RELU": "Relu"}
_INT32 = 6  # TensorProto.DataType.INT32


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Translate twins to ONNX: torch.onnx.export(..., dynamo=True, custom_translation_table=onnx_translations()).

    Returns:
        For each operator of a twin a function that makes ONNX's operators of it, for any number of steps and rows.

    Raises:
        MissingPackageError: onnxscript is not installed; torch.onnx.export needs it too. The export fails for what ONNX does
            not have, `proj_size` and PackedSequences: a TorchArgumentError is the cause of PyTorch's error.
    """
    try:
        from onnxscript import opset18
    except ImportError:
        raise MissingPackageError("onnx_translations needs the package onnxscript: pip install onnxscript") from None
    return {operator.default: _translation(opset18, mode) for mode, operator in OPERATORS.items()}


def _translation(op: Any, mode: str) -> Callable[..., Any]:
    """Make one operator's translation. PyTorch calls it by the names of the operator's arguments. op: the opset."""
    def translated(input: Any, hx: Any, weights: Any, batch_sizes: Any, module: str, input_size: int, hidden_size: int,
                   num_layers: int, bidirectional: bool, device: int, lengths: Any = None) -> Any:
        form = Form(mode, module, input_size, hidden_size, num_layers, bidirectional)
        d, count = form.directions, form.per_layer(weights)
        if count % 2 or batch_sizes is not None:
            found = "proj_size" if batch_sizes is None else "a PackedSequence"
            raise TorchArgumentError(module, "torch.onnx.export", found, "none: ONNX does not have it")
        attributes: dict[str, Any] = {"hidden_size": hidden_size, "direction": "bidirectional" if d == 2 else "forward"}
        if mode == "GRU":
            attributes["linear_before_reset"] = 1
        if mode in _ACTIVATIONS:
            attributes["activations"] = [_ACTIVATIONS[mode]] * d
        y, last = input, []
        lengths = None if lengths is None else op.Cast(lengths, to=_INT32)
        for k in range(num_layers):
            of_layer = [weights[start:start + count] for start in range(k * d * count, (k + 1) * d * count, count)]
            w, r, *biases = (_stacked(op, KINDS[mode].gates, hidden_size, tensors) for tensors in zip(*of_layer))
            b = op.Concat(*biases, axis=1) if biases else None
            states = [op.Slice(state, [k * d], [(k + 1) * d], [0]) for state in hx]
            y, *ends = getattr(op, mode.partition("_")[0])(y, w, r, b, lengths, *states, **attributes)
            y = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, -1])
            last.append(ends)
        return y, *(op.Concat(*of_layers, axis=0) for of_layers in zip(*last))

    return translated


def _stacked(op: Any, gates: tuple[int, ...], hidden_size: int, directions: Sequence[Any]) -> Any:
    """Stack a parameter of all directions, with the gates in ONNX's order."""
    rows = np.arange(len(gates) * hidden_size).reshape(len(gates), -1)[list(gates)].ravel().tolist()
    return op.Concat(*(op.Unsqueeze(op.Gather(tensor, rows), [0]) for tensor in directions), axis=0)
