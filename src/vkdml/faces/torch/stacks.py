"""Turns a module's layers into operators: its parameters in DirectML's form, and an execution for calls of one shape."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import TensorWeakRef

from ...engine.execution import Execution, Node
from ...engine.vulkan.memory import SHARED
from ...engine.weights import Contents, Snapshot, digest
from ...errors import TorchArgumentError
from ...operators import cells, element_types
from ...operators.activations import BY_TYPE, ParametrizedActivation
from ...operators.cells import Cell
from ...operators.header.descs import DML_OPERATOR_TYPE
from ...operators.problem import RangeCheck, problem_of
from ..directml.device import Device
from .transfers import run, to_numpy, to_torch

CPU = torch.device("cpu")
ELEMENTS = {getattr(torch, element.name): element for element in element_types.ALL}


class Kind(NamedTuple):
    """Which cell a PyTorch module becomes. gates: for each of the cell's gates, its index in PyTorch's order. training: the
    cells that run forward and backward.
    """

    cell: Cell
    gates: tuple[int, ...]
    activations: tuple[ParametrizedActivation, ...]
    training: tuple[Cell, Cell]
    flags: Mapping[str, bool] = {}


_SIGMOID, _TANH, _RELU, _IDENTITY = (ParametrizedActivation(BY_TYPE[DML_OPERATOR_TYPE[f"ACTIVATION_{name}"]])
                                     for name in ("SIGMOID", "TANH", "RELU", "IDENTITY"))

KINDS = {  # keys: PyTorch's names of modes
    # gates r z n -> z r h
    "GRU": Kind(cells.GRU, (1, 0, 2), (_SIGMOID, _TANH), (cells.GRU, cells.GRU_BACKWARD), {"LinearBeforeReset": True}),
    # gates i f g o -> i o f c
    "LSTM": Kind(cells.LSTM, (0, 3, 1, 2), (_SIGMOID, _TANH, _TANH), (cells.LSTM_TRAINING, cells.LSTM_BACKWARD)),
    "RNN_TANH": Kind(cells.RNN, (0,), (_TANH,), (cells.RNN, cells.RNN_BACKWARD)),
    "RNN_RELU": Kind(cells.RNN, (0,), (_RELU,), (cells.RNN, cells.RNN_BACKWARD)),
}
_STATES = ("HiddenInitTensor", "CellMemInitTensor")
_PROJECTION = KINDS["RNN_TANH"]._replace(activations=(_IDENTITY,))


class Shape(NamedTuple):
    """The shapes of a call. t, b: time steps and batch rows. states, lengths: whether initial states and lengths are given.
    shared: whether tensors pass through shared memory.
    """

    t: int
    b: int
    dtype: torch.dtype
    states: bool
    lengths: bool
    shared: bool = False


class Form(NamedTuple):
    """A recurrent module's settings. mode: PyTorch's name of the computation. module: the class, for errors."""

    mode: str
    module: str
    input_size: int
    hidden_size: int
    num_layers: int
    bidirectional: bool

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def per_layer(self, weights: Sequence[Any]) -> int:
        """How many weights each layer and direction has: 2, with biases 4, and with proj_size one more.

        Refuses another number.
        """
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) < 1:
                raise TorchArgumentError(self.module, name, getattr(self, name), "at least 1")
        count, left_over = divmod(len(weights), self.num_layers * self.directions)
        allowed = (2, 3, 4, 5) if self.mode == "LSTM" else (2, 4)
        if count not in allowed or left_over:
            raise TorchArgumentError(self.module, "weights", f"{len(weights)} for num_layers {self.num_layers}, "
                                     f"{self.directions} directions", f"one of {allowed} for each layer and direction")
        return count


def check_tensors(module: str, named: Iterable[tuple[str, Tensor]], dtype: torch.dtype, device: torch.device) -> None:
    """Refuse tensors other than dense ones of this type on this device, which is that of the parameters."""
    for argument, tensor in named:
        if tensor.layout is not torch.strided:
            raise TorchArgumentError(module, argument, f"a Tensor, {tensor.layout}", "a dense Tensor")
        if tensor.device != device:
            raise TorchArgumentError(module, argument, f"a tensor on {tensor.device}", f"one on {device}")
        if tensor.dtype is not dtype:
            raise TorchArgumentError(module, argument, tensor.dtype, f"{dtype}, as the parameters")


def is_certain(condition: bool) -> bool:
    """Evaluate a condition on sizes. False if PyTorch's compilers do not know it yet: the compiled call checks it then."""
    try:
        return bool(condition)
    except RuntimeError:
        return False


def device_of(weights: Sequence[Tensor]) -> torch.device:
    """Return the device that all tensors of a call must be on: that of the parameters, unless these have no values."""
    device = weights[0].device if weights else CPU
    return CPU if device.type == "meta" else device


class StackLayer:
    """The parameters of one layer.

    DirectML's LSTM has no projection P (proj_size). So the operator runs with the unprojected state m and the recurrent weights
    R P, and its results are multiplied by P afterwards: h = P m.
    """

    def __init__(self, form: Form, k: int, named: Sequence[tuple[str, Tensor]], projected: int | None) -> None:
        """k: which layer. named: its parameters, of one direction after the other. projected: proj_size; None: there is none.

        Refuses parameters of other shapes than these settings imply.
        """
        self.kind, self.directions, self.projected = KINDS[form.mode], form.directions, projected
        self.width = self.directions * (projected or form.hidden_size)  # numbers of the output for one row and step
        count = len(named) // self.directions
        self.parameters = [[tensor for _, tensor in named[kind::count]] for kind in range(count)]  # by kind, then direction
        self.has_bias = count > 3
        rows, columns = len(self.kind.gates) * form.hidden_size, projected or form.hidden_size
        shapes = [(rows, self.width if k else form.input_size), (rows, columns), *[(rows,)] * 2 * self.has_bias]
        shapes = [*shapes, (columns, form.hidden_size)][:count] * self.directions
        for (name, tensor), shape in zip(named, shapes):
            if tensor.shape != shape:
                raise TorchArgumentError(form.module, name, f"the shape {tuple(tensor.shape)}", str(shape))

    def arrays(self) -> list[dict[str, np.ndarray]]:
        """Make the weights, by DirectML field, of the recurrent node and, with proj_size, of the two nodes that project.

        These two multiply by a block-diagonal matrix with the P of each direction.
        """
        parts = [[to_numpy(tensor) for tensor in directions] for directions in self.parameters]
        projections = parts.pop() if self.projected else []
        if projections:
            parts[1] = [(r.astype(np.float64) @ p).astype(p.dtype) for r, p in zip(parts[1], projections)]
        gates = list(self.kind.gates)
        w, r, *biases = (np.stack([array.reshape(len(gates), -1)[gates].reshape(array.shape) for array in directions])
                         for directions in parts)
        arrays = {"WeightTensor": w, "RecurrenceTensor": r}
        if biases:
            arrays["BiasTensor"] = np.concatenate(biases, 1)
        if not projections:
            return [arrays]
        diagonal = to_numpy(torch.block_diag(*self.parameters[-1]))
        return [arrays, *[{"WeightTensor": diagonal, "RecurrenceTensor": np.zeros((self.width,) * 2, diagonal.dtype)}] * 2]

    def snapshots(self) -> list[Snapshot]:
        """Make a snapshot of each node's weights."""
        tensors = [tensor for directions in self.parameters for tensor in directions]
        origin = digest({str(place): to_numpy(tensor) for place, tensor in enumerate(tensors)}, "PyTorch", self.kind.gates,
                        self.directions)
        projecting = Snapshot(lambda: self.arrays()[1], (origin, "P"))
        return [Snapshot(lambda: self.arrays()[0], origin), *[projecting] * (2 * bool(self.projected))]

    @cached_property
    def projections(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """P of each direction and its pseudoinverse, both transposed to be multiplied from the right; in float64."""
        matrices = [to_numpy(tensor).astype(np.float64) for tensor in self.parameters[-1]] if self.projected else []
        return [(matrix.T, np.linalg.pinv(matrix).T) for matrix in matrices]


def layers_of(form: Form, weights: Sequence[Tensor], device: torch.device) -> list[StackLayer]:
    """Make layers of a module's weights, in PyTorch's order. Refuses weights that are not of this form and device."""
    count = form.per_layer(weights)
    names = ["weight_ih", "weight_hh", *["bias_ih", "bias_hh"][:count // 4 * 2], *["weight_hr"][:count % 2]]
    ends = [f"_l{k}{end}" for k in range(form.num_layers) for end in ["", "_reverse"][:form.directions]]
    if form.module.endswith("Cell") and len(ends) == 1:
        ends = [""]
    named, dtype = list(zip([name + end for end in ends for name in names], weights)), weights[0].dtype
    check_tensors(form.module, named, dtype, device)
    if dtype not in ELEMENTS:
        raise TorchArgumentError(form.module, "parameters", dtype, "one of " + ", ".join(map(str, ELEMENTS)))
    projected = max((1, *weights[count - 1].shape[:1])) if count % 2 else None
    count *= form.directions
    return [StackLayer(form, k, named[k * count:(k + 1) * count], projected) for k in range(form.num_layers)]


class Stack:
    """The execution of all layers, for calls of one shape."""

    def __init__(self, form: Form, shape: Shape, device: Device, parameters: ModuleParameters) -> None:
        layers = parameters.layers
        self._form, self._shape, self._element = form, shape, ELEMENTS[shape.dtype]
        steps = [step for k, layer in enumerate(layers) for step in self._layer(layer, k)]
        t, b, d, width = shape.t, shape.b, form.directions, layers[0].width
        rows = (b, d) if d > 1 else (d, b)  # of a state; one direction's are in PyTorch's order already
        self._results = {f"y{len(layers) - 1}": (t, b, width)}
        self._results |= {f"h{k}": (*rows, width // d) for k in range(len(layers))}
        if "OutputCellSingleTensor" in layers[0].kind.cell.outputs:
            self._results |= {f"c{k}": (*rows, form.hidden_size) for k in range(len(layers))}
        shared = ["y-1", *(f"{field}{k}" for field in _STATES for k in range(len(layers))), *self._results]
        ways = dict.fromkeys(shared if shape.shared else (), SHARED)
        self.execution = Execution(device.gpu, device.share, steps, self._results, contents=parameters, ways=ways)

    def _layer(self, layer: StackLayer, k: int) -> list[Node]:
        """Make a recurrent node and, with proj_size, the nodes that project the sequence and the last state.

        Outputs are laid out as PyTorch has them: a row's directions side by side.
        """
        shape, d, h = self._shape, layer.directions, self._form.hidden_size
        sizes = {"T": shape.t, "B": shape.b, "I": layer.width if k else self._form.input_size, "H": h, "D": d}
        states = (0, h, d * h, 1)
        strides = {"OutputSequenceTensor": (shape.b * d * h, h, d * h, 1),
                   "OutputSingleTensor": states, "OutputCellSingleTensor": states}
        made = "m" if layer.projected else ""
        names = {"InputTensor": f"y{k - 1}", "OutputSequenceTensor": f"{made}y{k}", "OutputSingleTensor": f"{made}h{k}",
                 "OutputCellSingleTensor": f"c{k}", "SequenceLengthsTensor": "lengths"}
        given = {"BiasTensor": layer.has_bias, "HiddenInitTensor": shape.states, "CellMemInitTensor": shape.states,
                 "SequenceLengthsTensor": shape.lengths, "PeepholeTensor": False}
        fields = [field for field in layer.kind.cell.tensors if given.get(field, True)]
        steps = [self._step(layer.kind, sizes, fields, strides, {field: names.get(field, f"{field}{k}") for field in fields})]
        for value, count in (("y", shape.t * shape.b), ("h", shape.b)) if layer.projected else ():
            sizes = {"T": 1, "B": count, "I": d * h, "H": layer.width, "D": 1}
            names = {"InputTensor": f"m{value}{k}", "WeightTensor": f"P{k}", "RecurrenceTensor": "zeros",
                     "OutputSequenceTensor": f"{value}{k}"}
            steps.append(self._step(_PROJECTION, sizes, list(names), {}, names))
        return steps

    def _step(self, kind: Kind, sizes: Mapping[str, int], fields: Sequence[str], strides: Mapping[str, Sequence[int]],
              names: Mapping[str, str]) -> Node:
        reverse = (False, True)[:sizes["D"]]
        return Node(problem_of(kind.cell, self._element, sizes, fields, kind.activations, kind.flags, reverse, strides), names)

    def run(self, parameters: ModuleParameters, x: Tensor, states: Sequence[Tensor], lengths: Tensor | None) -> list[Tensor]:
        """Run all layers on x [T, B, I]. Returns y [T, B, D * H] and the last states, [layers * D, B, H] each."""
        values, count, name = {"y-1": x}, self._form.num_layers, self._form.module
        for field, state in zip(_STATES, states):
            for k, part in enumerate(state.chunk(count)):
                projections = parameters.layers[k].projections if field == "HiddenInitTensor" else []
                values[f"{field}{k}"] = _unprojected(name, part, projections) if projections else part
        check = None
        if self._element.pairs:
            given = parameters.arrays() | {key: to_numpy(tensor) for key, tensor in values.items()}
            check = RangeCheck(name, {key: key for key in (*given, *self._results)}, given)
        if lengths is not None:
            values["lengths"] = lengths.to(torch.int32)
        results = run(name, self.execution, values, self._results)
        if check:
            check.check_results({key: to_numpy(tensor) for key, tensor in results.items()})
        y, *last = results.values()
        is_single = self._form.directions == 1
        if count > 1:
            last = [torch.cat(last[start:start + count], 1 - is_single) for start in range(0, len(last), count)]
        return [y, *(last if is_single else [state.transpose(0, 1).contiguous() for state in last])]


def _unprojected(name: str, h: Tensor, projections: Sequence[tuple[np.ndarray, np.ndarray]]) -> Tensor:
    """Compute the unprojected states m with P m = h, for states h [D, B, proj_size]. Refuses h for which there is no m."""
    states, given = [], to_numpy(h)
    for state, (projection, inverse) in zip(given.astype(np.float64), projections):
        states.append(state @ inverse)
        if np.isfinite(state).all() and not np.allclose(states[-1] @ projection, state, atol=1e-6):
            raise TorchArgumentError(name, "hx[0]", "states that weight_hr cannot make",
                                     "None, or products of weight_hr with some state")
    return to_torch(np.stack(states).astype(given.dtype))


class ModuleParameters(Contents):
    """A copy of a module's parameters, which its stacks compute with.

    Each call checks whether they have changed. Weights are packed from it; arrays in DirectML's form are made when needed.
    """

    def __init__(self, is_graphs: bool) -> None:
        super().__init__()
        self.layers: list[StackLayer] = []
        self._form: Form | None = None
        self._seen: list[_Seen] = []
        self._holds = _OF_GRAPHS if is_graphs else _OF_TWINS
        self._snapshots: dict[Hashable, Snapshot] = {}

    def update(self, form: Form, weights: Sequence[Tensor]) -> None:
        """Copy a module's parameters again if they have changed. weights: all of them, in PyTorch's order."""
        is_alike = form == self._form and len(weights) == len(self._seen)
        if is_alike and all(map(_Seen.is_unchanged, self._seen, weights)):
            return
        layers_of(form, weights, device_of(weights))  # refuses wrong ones
        if is_alike and all(map(_Seen.equals, self._seen, weights)):
            return
        seen = [_Seen(tensor, self._holds) for tensor in weights]
        self.layers = layers_of(form, [one.copy for one in seen], CPU)
        self._form, self._seen = form, seen
        self._snapshots = dict(enumerate(snapshot for layer in self.layers for snapshot in layer.snapshots()))
        self.version += 1

    def arrays(self) -> dict[str, np.ndarray]:
        """Collect all weights, named by field and layer. The names of those that project end with P."""
        return {f"{field}{k}{'P' * bool(node)}": array for k, layer in enumerate(self.layers)
                for node, arrays in enumerate(layer.arrays()) for field, array in arrays.items()}

    def snapshot(self, owner: Hashable) -> Snapshot:
        """Return the weights of one of a stack's nodes."""
        return self._snapshots[owner]


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PROBED = 64  # elements of a tensor

# How to refer to a tensor, by type, so that no other one gets its identity. A graph's stacks live as long as its first weight:
# they must not hold it. PyTorch swaps no parameter that has a weak reference; a twin's other weights are new at each call
_OF_GRAPHS: dict[type[Tensor], Any] = {Tensor: TensorWeakRef, nn.Parameter: TensorWeakRef}
_OF_TWINS: dict[type[Tensor], Any] = {nn.Parameter: lambda tensor: lambda: tensor}


class _Seen:
    """A copy of a tensor, and marks of that tensor: PyTorch counts its writes, but for those of fused optimizers, whose steps
    are counted here. A view of a few elements shows most others; on a device none is read, as that takes a wait.

    The view keeps the memory, so that no other tensor gets its address. steps: those of all optimizers so far.
    """

    steps = 0
    _mark: tuple[Any, ...] = None, type(None), None, b""

    def __init__(self, tensor: Tensor, holds: Mapping[type[Tensor], Any]) -> None:
        self.copy, self._holds = tensor.detach().to(CPU, copy=True, memory_format=torch.contiguous_format), holds
        self.equals(tensor)  # marks it

    def is_unchanged(self, tensor: Tensor) -> bool:
        """Whether it is the tensor that had these contents, and has not been written to since."""
        facts, held, some, bits = self._mark
        return held() is tensor and facts == _facts(tensor) and bits == (some.tobytes() if tensor.is_cpu else b"")

    def equals(self, tensor: Tensor) -> bool:
        """Whether a tensor has the type and bits of the copy, so that NaN equals NaN and -0 differs from 0."""
        copy, hold, words = self.copy, self._holds.get(type(tensor)), _WORDS[self.copy.itemsize]
        facts = _facts(tensor) if hold else None
        if tensor.dtype is not copy.dtype or not torch.equal(tensor.detach().cpu().resolve_neg().view(words), copy.view(words)):
            return False
        self._mark = _Seen._mark
        if hold and facts and not tensor.is_cpu:
            self._mark = facts, hold(tensor), tensor.detach(), b""
        elif hold and facts and tensor.is_contiguous() and not tensor.is_shared():  # other processes' writes are not counted
            step = tensor.numel() // _PROBED | 1  # odd: at all columns and cache sets
            some = np.from_dlpack(tensor.detach().view(-1)[::step].view(words))  # numpy() would forbid to resize the tensor
            self._mark = facts, hold(tensor), some, some.tobytes()
        return True


def _count_step(*_: object) -> None:
    _Seen.steps += 1


register_optimizer_step_post_hook(_count_step)


def _facts(tensor: Tensor) -> tuple[Any, ...] | None:
    """Return all that changes with a write that is counted, or with other memory. None: PyTorch counts none of this tensor."""
    if tensor.is_inference() or tensor.is_neg():
        return None
    return _Seen.steps, tensor._cdata, tensor._version, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
