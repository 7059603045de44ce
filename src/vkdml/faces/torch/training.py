"""Training on the device: a direction of a layer is a torch.autograd.Function. PyTorch composes layers of it, and
differentiates all else: proj_size, dropout, packing, and putting a direction's parameters into one matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import _C, Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.weak import TensorWeakRef

from ...engine.execution import Execution, Kept, Node
from ...engine.vulkan.store import Recent
from ...errors import TorchArgumentError
from ...operators import copy_problem, plain_problem
from ...operators.checks import round_up
from ...operators.element_types import FLOAT32
from ...operators.header import descs
from ...operators.problem import problem_of
from ..directml.device import Device
from ..sessions import open_device
from .stacks import KINDS, device_of, layers_of
from .torch_operators import CompiledStacks, OperatorCall, States
from .transfers import run


class Pass(NamedTuple):
    """What a direction of a layer computes, for one shape. number: of this direction among the module's."""

    mode: str
    t: int
    b: int
    inputs: int
    hidden: int
    reverse: bool
    lengths: bool
    number: int


class Passes:
    """The executions of a direction of a layer, which pack weights at each run. matrices: one for all shapes of a direction."""

    def __init__(self, of: Pass, device: Device, matrices: Recent[Any]) -> None:
        kind, sizes = KINDS[of.mode], {"T": of.t, "B": of.b, "I": of.inputs, "H": of.hidden, "D": 1}
        cell, gradient = kind.training
        self.words, h, count = gradient.loops[0].words, of.hidden, of.t * of.b
        whole = max(4, device.gpu.info.storage_buffer_alignment // 4)  # where a vector, or a part of a buffer, may begin
        at = self.at = round_up(h, whole)  # W's first column in the matrix
        columns = self.columns = round_up(at + of.inputs + 1, whole)
        left_out = {"PeepholeTensor", "" if of.lengths else "SequenceLengthsTensor"}
        fields, after = ([field for field in one.tensors if field not in left_out] for one in (cell, gradient))
        rows, n = self.words * h, len(kind.gates) * h
        more = rows - n  # a GRU's matrix has one gate more
        strides = {"WeightTensor": (0, 0, columns, 1), "RecurrenceTensor": (0, 0, h if more else columns, 1)}
        node = Node(problem_of(cell, FLOAT32, sizes, fields, kind.activations, kind.flags, (of.reverse,), strides),
                    {field: field for field in fields} | {"WeightTensor": "W", "RecurrenceTensor": "R" if more else "w"})
        self.results = {field: (of.t, of.b, cell.loops[-1].words * h) if field == "OutputSequenceTensor" else (of.b, h)
                        for field in cell.outputs}
        matrix = matrices.get((of.number, rows, columns), lambda: Kept(4 * rows * columns))
        parts = {"W": ("w", 4 * (more * columns + at)), "all W": ("w", 4 * at)}
        self.forward = Execution(device.gpu, device.share, [node], self.results, ways={"w": matrix}, parts=parts)

        names = {field: field for field in after} | dict.fromkeys(("WeightTensor", "RecurrenceTensor"), "w")
        strides = {"RecurrenceTensor": (0, 0, 1, columns)}  # the matrix's first columns, transposed
        node = Node(problem_of(gradient, FLOAT32, sizes | {"I": columns}, after, kind.activations, {}, (not of.reverse,),
                               strides), names)
        d, starts = "OutputSequenceTensor", _desc(1, of.b, data_type=descs.DML_TENSOR_DATA_TYPE.INT32)
        first = copy_problem.gather(descs.DML_GATHER_OPERATOR_DESC(
            InputTensor=_desc(count, rows), IndicesTensor=starts, OutputTensor=_desc(of.b, rows), Axis=0, IndexDimensions=1))
        nodes = [node, _product((rows, count, 1, rows), d, (count, columns, columns, 1), "InputTensor", "dw"),
                 _product((count, rows, rows, 1), d, (rows, of.inputs, columns, 1), "all W", "dx"),
                 Node(first, {"InputTensor": d, "IndicesTensor": "starts", "OutputTensor": "first"}),
                 _product((of.b, rows, rows, 1), "first", (rows, h, columns, 1), "w", "dh")]
        last = {field: (of.b, h) for field in gradient.outputs if field != d}
        self.gradients = {"dw": (rows, columns), "dx": (of.t, of.b, of.inputs), "dh": (of.b, h), **last}
        self.backward = Execution(device.gpu, device.share, nodes, self.gradients, ways={"w": matrix}, parts=parts)


def _desc(*sizes: int, strides: Any = None, data_type: Any = FLOAT32.data_type) -> descs.DML_BUFFER_TENSOR_DESC:
    return descs.DML_BUFFER_TENSOR_DESC(DataType=data_type, Sizes=sizes, Strides=strides)


def _product(a: tuple[int, ...], a_name: str, b: tuple[int, ...], b_name: str, result: str) -> Node:
    """Make a node of a product of matrices: the rows and columns of each, and their strides."""
    of_a, of_b = (_desc(1, 1, *one[:2], strides=(0, 0, *one[2:])) for one in (a, b))
    gemm = descs.DML_GEMM_OPERATOR_DESC(ATensor=of_a, BTensor=of_b, OutputTensor=_desc(1, 1, a[0], b[1]))
    return Node(plain_problem.gemm(gemm), {"ATensor": a_name, "BTensor": b_name, "OutputTensor": result})


class _Layer(torch.autograd.Function):
    """One direction of a layer: x [T, B, I], states [B, H] and the matrix [R, W, bias]. Returns y and the last states."""

    @staticmethod
    def forward(ctx: Any, of: Pass, passes: Passes, lengths: Tensor | None, x: Tensor, w: Tensor, h: Tensor, c: Tensor) -> Any:
        hidden, inputs, n = of.hidden, of.inputs, len(KINDS[of.mode].gates) * of.hidden
        biases, values = w[:, passes.at + inputs], {"InputTensor": x, "w": w, "HiddenInitTensor": h, "CellMemInitTensor": c}
        recurrent_bias = w.new_zeros(n)
        if of.mode == "GRU":  # m z r n -> z r n, and R's gates lie together nowhere
            recurrent_bias, values["R"] = pad(biases[:hidden], (2 * hidden, 0)), w[:n, :hidden].roll(-hidden, 0)
        values["BiasTensor"] = torch.cat([biases[-n:], recurrent_bias])
        if lengths is not None:
            values["SequenceLengthsTensor"] = lengths.int()
        ctx.of, ctx.passes, ctx.lengths = of, passes, lengths
        ctx.mark, ctx.matrix = object(), TensorWeakRef(w)
        results = run(of.mode, passes.forward, values, passes.results, {"w": ctx.mark})
        y, *last = results.values()
        ctx.save_for_backward(x, w, h, c, y)  # PyTorch refuses backward after one of them was changed in place
        ctx.set_materialize_grads(False)
        return y[..., :hidden].clone(), *last

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dh: Tensor | None, dc: Tensor | None = None) -> Any:
        if torch.is_grad_enabled():
            raise TorchArgumentError("vkdml.torch", "training on the device, create_graph", True, "False: first derivatives")
        if any("Batched" in str(_C._dispatch_keys(one)) for one in (dy, dh, dc) if one is not None):
            raise TorchArgumentError("vkdml.torch", "training on the device, is_grads_batched or vmap", True, "False")
        (x, w, h, c, after), of, lengths = ctx.saved_tensors, ctx.of, ctx.lengths
        rows, starts, ends = _ends(x, lengths, of.reverse)
        states = torch.cat([h, c], 1)[:, :after.shape[-1]]
        before = after.roll(-1 if of.reverse else 1, 0).index_put((starts, rows), states)
        given = torch.cat([pad(before[..., :of.hidden], (0, ctx.passes.at - of.hidden)), x, x.new_ones(of.t, of.b, 1)], -1)
        outside = x.new_zeros(of.t, of.b, of.hidden) if dy is None else dy
        if dh is not None:
            outside = outside.index_put((ends, rows), dh, accumulate=True)
        saved = torch.cat([outside, before[..., -of.hidden:]][:min(ctx.passes.words, 2)], -1)  # an RNN needs no h
        values = {"InputTensor": pad(given, (0, w.shape[1] - given.shape[-1])), "SavedTensor": saved, "w": w,
                  "starts": (starts * of.b + rows).int(), "CellMemInitTensor": torch.zeros_like(c) if dc is None else dc}
        if lengths is not None:
            past = (torch.arange(of.t, device=x.device)[:, None] >= lengths)[..., None]
            values |= {name: values[name].masked_fill(past, 0) for name in ("InputTensor", "SavedTensor")}
            values["SequenceLengthsTensor"] = lengths.int()
        mark = ctx.mark if ctx.matrix() is w else object()  # hooks of saved tensors may return another matrix
        found = run(of.mode, ctx.passes.backward, values, ctx.passes.gradients, {"w": mark})
        first, of_h = found.get("OutputCellSingleTensor"), found["dh"]
        if of.mode == "GRU":
            of_h = of_h + first
        return None, None, None, found["dx"], found["dw"], of_h, first if of.mode == "LSTM" else None


def _ends(x: Tensor, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the numbers of all rows, and the first and last step of each in a direction."""
    rows = torch.arange(x.shape[1], device=x.device)
    last = torch.full_like(rows, len(x) - 1) if lengths is None else (lengths.long() - 1).clamp(min=0)
    return (rows, last, rows * 0) if reverse else (rows, rows * 0, last)


def _matrix(of: Pass, passes: Passes, w: Tensor, r: Tensor, biases: list[Tensor]) -> Tensor:
    """Put R, W and the biases side by side, with the gates in the order of the gradient's cell."""
    gates = KINDS[of.mode].gates
    w, r, bias, r_bias = (torch.cat([part.chunk(len(gates))[gate] for gate in gates])
                          for part in (w, r, *(biases or [w.new_zeros(len(w))] * 2)))
    h = of.hidden
    if of.mode == "GRU":  # z r n -> m z r n
        w, r = pad(w, (0, 0, h, 0)), torch.cat([r[2 * h:], pad(r[:2 * h], (0, 0, 0, h))])
        bias, r_bias = pad(bias, (h, 0)), torch.cat([r_bias[2 * h:], pad(r_bias[:2 * h], (0, h))])
    joined = torch.cat([pad(r, (0, passes.at - h)), w, (bias + r_bias)[:, None]], 1)
    return pad(joined, (0, passes.columns - joined.shape[1]))


def _check(call: OperatorCall) -> None:
    """Refuse what has no gradient on the device, and a PyTorch that has no names to find that out."""
    private = ("_are_functorch_transforms_active", "_dispatch_keys", "_get_dispatch_mode", "_TorchDispatchModeKey")
    missing = [name for name in private if not hasattr(_C, name)]
    if missing:
        raise TorchArgumentError(call.module, "training on the device, PyTorch", f"{torch.__version__} without torch._C."
                                 f"{missing[0]}", "a version that has it, as 2.13.0; or convert(..., training=\"torch\")")
    _, (_, rows, _), *_ = call.check(layers_of(call.form, call.weights, device_of(call.weights))[0].width)
    modes = (_C._get_dispatch_mode(mode) for mode in (_C._TorchDispatchModeKey.PROXY, _C._TorchDispatchModeKey.FAKE))
    is_captured = torch.compiler.is_compiling() or torch.jit.is_tracing() or any(modes)
    refused = [("input", "no rows", rows == 0, "at least one"),
               ("dtype", call.input.dtype, call.input.dtype is not torch.float32, "torch.float32"),
               ("autocast", "enabled", torch.is_autocast_enabled(call.input.device.type), "disabled, with float32"),
               ("torch.func or vmap", "active", _C._are_functorch_transforms_active(), "none: loss.backward()"),
               ("graph capture", "active", is_captured, "none: train in eager mode, or capture after .eval()")]
    for what, found, is_refused, allowed in refused:
        if is_refused:
            raise TorchArgumentError(call.module, f"training on the device, {what}", found, allowed)


def run_layers(call: OperatorCall, compiled: CompiledStacks, dropout: float) -> States:
    """Run a module's layers as PyTorch does: [T, B, I], or a PackedSequence's data. Returns y and the last states."""
    _check(call)
    form, x, lengths, count = call.form, call.input, call.lengths, call.form.per_layer(call.weights)
    if call.batch_sizes is not None:
        x, lengths = pad_packed_sequence(PackedSequence(x, call.batch_sizes))
    lengths = None if lengths is None else lengths.to(x.device, copy=True)  # backward reads them, too
    device, h, last = open_device(form.module, compiled.device), form.hidden_size, list[Any]()
    for k in range(form.num_layers):
        outputs = []
        for direction in range(form.directions):
            at = k * form.directions + direction
            w, r, *biases = call.weights[at * count:(at + 1) * count]
            projection = biases.pop() if count % 2 else None
            given, zeros = x, x.new_zeros(x.shape[1], h)
            states = [*(state[at] for state in call.hx), zeros, zeros][:2] if call.hx else [zeros, zeros]
            if projection is not None and call.hx:  # R multiplies the first h, which is no P m, as an input of the first step
                rows, starts, _ = _ends(x, lengths, direction == 1)
                first = x.new_zeros(*x.shape[:2], len(projection)).index_put((starts, rows), states[0])
                given, w, states[0] = torch.cat([x, first], -1), torch.cat([w, r], 1), zeros
            of = Pass(form.mode, len(x), x.shape[1], given.shape[2], h, direction == 1, lengths is not None, at)
            with compiled.lock:
                of_shape = compiled.stacks.get((of.t, of.b, of.lengths, device), dict)  # so that the bound counts shapes
                passes = of_shape.get(of) or of_shape.setdefault(of, Passes(of, device, compiled.stacks))
            matrix = _matrix(of, passes, w, r if projection is None else r @ projection, biases)
            y, *ends = _Layer.apply(of, passes, lengths, given, matrix, *states)
            if projection is not None:
                y, ends[0] = y @ projection.T, ends[0] @ projection.T
            outputs.append(y)
            last.append(ends)
        x = torch.cat(outputs, -1)
        if dropout and k + 1 < form.num_layers:
            x = torch.dropout(x, dropout, True)
    if call.batch_sizes is not None:
        x = pack_padded_sequence(x, lengths.cpu()).data  # type: ignore[union-attr]
    return x, *(torch.stack(state) for state in zip(*last))
