"""A module's layers as a list of operators: parameters in DirectML's form, and the execution for calls of one shape."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...engine.execution import Execution, Node
from ...engine.weights import Contents, Snapshot, digest
from ...errors import InvalidArgumentError
from ...operators import cells, element_types
from ...operators.arguments import tensor_descs
from ...operators.cells import Cell
from ...operators.element_types import ElementType
from ...operators.float64 import RangeCheck
from ...operators.header import descs
from ...operators.header.descs import DML_RECURRENT_NETWORK_DIRECTION
from ...operators.problem import from_desc
from ..directml.device import Device

ELEMENTS = {getattr(torch, element.name): element for element in element_types.ALL}


@dataclass(frozen=True)
class Kind:
    """How a PyTorch module becomes a cell. gates: for each of the cell's gates, its index in PyTorch's order."""

    cell: Cell
    gates: tuple[int, ...]
    activations: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


_SIGMOID, _TANH, _RELU, _IDENTITY = (getattr(descs, f"DML_ACTIVATION_{name}_OPERATOR_DESC")()
                                     for name in ("SIGMOID", "TANH", "RELU", "IDENTITY"))

KINDS = {  # keys: PyTorch's names of modes
    "GRU": Kind(cells.GRU, (1, 0, 2), (_SIGMOID, _TANH), {"LinearBeforeReset": True}),  # r z n -> z r h
    "LSTM": Kind(cells.LSTM, (0, 3, 1, 2), (_SIGMOID, _TANH, _TANH)),  # i f g o -> i o f c
    "RNN_TANH": Kind(cells.RNN, (0,), (_TANH,)),
    "RNN_RELU": Kind(cells.RNN, (0,), (_RELU,)),
}
_PROJECTION = Kind(cells.RNN, (0,), (_IDENTITY,))


@dataclass(frozen=True)
class Shape:
    """What calls must have in common to share an execution.

    t, b: time steps and batch rows. i: inputs of the first layer. h: hidden units of each layer. states, lengths: whether
    initial states and sequence lengths are given.
    """

    t: int
    b: int
    i: int
    h: int
    element: ElementType
    states: bool
    lengths: bool


class Form(NamedTuple):
    """What a recurrent module says of itself. module: its class, for errors."""

    module: str
    input_size: int
    hidden_size: int
    num_layers: int
    bidirectional: bool

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1


class Layer:
    """The parameters of one layer.

    DirectML's LSTM has no projection P (proj_size). So the operator runs with the unprojected state m and the recurrent weights
    R P, and its results are multiplied by P afterwards: h = P m.
    """

    def __init__(self, kind: Kind, form: Form, parameters: Sequence[Mapping[str, Tensor]], inputs: int | None) -> None:
        """parameters: for each direction, by name. inputs: how many it takes; None: those that another layer makes."""
        self.kind = kind
        self.directions = form.directions
        self._names = [name for by_kind in zip(*parameters) for name in by_kind]
        self.parameters = [list(of_directions) for of_directions in zip(*(direction.values() for direction in parameters))]
        self.has_bias = len(self.parameters) > 3
        self.projected = self.parameters[-1][0].shape[0] if len(self.parameters) % 2 else 0
        self._form = form
        self._inputs = inputs or self.directions * (self.projected or form.hidden_size)

    @property
    def named(self) -> list[tuple[str, Tensor]]:
        return list(zip(self._names, chain.from_iterable(self.parameters)))

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of layers that run alike."""
        return self.kind.activations, *(tensor.shape for _, tensor in self.named)

    def check_shapes(self) -> None:
        """Refuse parameters that somebody has replaced by others."""
        h = self._form.hidden_size
        rows = len(self.kind.gates) * h
        shapes = [(rows, self._inputs), (rows, self.projected or h)] + [(rows,)] * 2 * self.has_bias + [(self.projected, h)]
        for (name, tensor), shape in zip(self.named, (shape for shape in shapes for _ in range(self.directions))):
            if tensor.shape != shape:
                raise InvalidArgumentError(self._form.module, name, f"the shape {tuple(tensor.shape)}", str(shape))

    @property
    def width(self) -> int:
        """The size of the layer's output for one row and step."""
        return self.directions * (self.projected or self.parameters[1][0].shape[1])

    def arrays(self) -> dict[str, np.ndarray]:
        """Weights by DirectML field; with a projection also P, block-diagonal with a block for each direction."""
        parts = [[to_numpy(tensor) for tensor in directions] for directions in self.parameters]
        projections = parts.pop() if self.projected else []
        if projections:
            parts[1] = [(r.astype(np.float64) @ p).astype(p.dtype) for r, p in zip(parts[1], projections)]
        w, r, *biases = (np.stack([self._reorder(array) for array in directions]) for directions in parts)
        arrays = {"WeightTensor": w, "RecurrenceTensor": r}
        if biases:
            arrays["BiasTensor"] = np.concatenate(biases, 1)
        if projections:
            arrays["P"] = _diagonal(projections)
        return {field: np.ascontiguousarray(array) for field, array in arrays.items()}

    def holding(self, values: Iterator[Tensor]) -> Layer:
        """The layer with the next of these as its parameters."""
        layer = copy(self)
        layer.parameters = [[next(values) for _ in directions] for directions in self.parameters]
        return layer

    def snapshots(self) -> list[Snapshot]:
        """The weights of its nodes: of the recurrent one, and of those that project the sequence and the last state."""
        origin = digest({str(place): to_numpy(tensor) for place, tensor in enumerate(chain.from_iterable(self.parameters))},
                        "PyTorch", self.kind.gates, self.directions)
        projecting = Snapshot(self._projection_arrays, (origin, "P"))
        return [Snapshot(self._recurrent_arrays, origin), *[projecting] * (2 * bool(self.projected))]

    def _recurrent_arrays(self) -> dict[str, np.ndarray]:
        return {field: array for field, array in self.arrays().items() if field != "P"}

    def _projection_arrays(self) -> dict[str, np.ndarray]:
        projection = self.arrays()["P"]
        return {"WeightTensor": projection, "RecurrenceTensor": np.zeros((self.width, self.width), projection.dtype)}

    def _reorder(self, array: np.ndarray) -> np.ndarray:
        gates = np.split(array, len(self.kind.gates))
        return np.concatenate([gates[index] for index in self.kind.gates])

    def projections(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """P of each direction and its pseudoinverse, both transposed to be multiplied from the right; in float64."""
        if not self.projected:
            return []
        matrices = [to_numpy(tensor).astype(np.float64) for tensor in self.parameters[-1]]
        return [(matrix.T, np.linalg.pinv(matrix).T) for matrix in matrices]


def layers_of(mode: str, form: Form, weights: Sequence[Tensor]) -> list[Layer]:
    """Layers from all weights of a module, in PyTorch's order."""
    ends = ["", "_reverse"][:form.directions]
    count, left_over = divmod(len(weights), form.num_layers * form.directions) if form.num_layers > 0 else (0, 0)
    if count not in (2, 3, 4, 5) or left_over:
        raise InvalidArgumentError(form.module, "weights", f"{len(weights)} for num_layers {form.num_layers}, "
                                   f"{form.directions} directions", "at least one layer, and 2 to 5 for each and direction")
    names = ["weight_ih", "weight_hh", *["bias_ih", "bias_hh"][:count // 4 * 2], *["weight_hr"][:count % 2]]
    left = iter(weights)
    return [Layer(KINDS[mode], form, [{name + ("" if form.module.endswith("Cell") else f"_l{k}{end}"): next(left)
                                       for name in names} for end in ends], None if k else form.input_size)
            for k in range(form.num_layers)]


def _diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """One matrix with the blocks along its diagonal."""
    rows, columns = blocks[0].shape
    matrix = np.zeros((rows * len(blocks), columns * len(blocks)), blocks[0].dtype)
    for index, block in enumerate(blocks):
        matrix[index * rows:(index + 1) * rows, index * columns:(index + 1) * columns] = block
    return matrix


class Stack:
    """The execution of all layers, for calls of one shape."""

    def __init__(self, layers: Sequence[Layer], shape: Shape, device: Device, parameters: Parameters) -> None:
        self._shape = shape
        self._layers = len(layers)
        steps: list[Node] = []
        width = shape.i
        for k, layer in enumerate(layers):
            steps += self._layer(layer, k, width)
            width = layer.width
        t, b, d = shape.t, shape.b, layers[0].directions
        self._sequence = f"y{len(layers) - 1}"
        self._results = {self._sequence: (t, b, width)}
        self._results |= {f"h{k}": (b, d, width // d) for k in range(len(layers))}
        if "OutputCellSingleTensor" in layers[0].kind.cell.outputs:
            self._results |= {f"c{k}": (b, d, shape.h) for k in range(len(layers))}
        self._execution = Execution(device.gpu, device.share, steps, self._results, contents=parameters)

    def _layer(self, layer: Layer, k: int, width: int) -> list[Node]:
        """A recurrent step and, if the layer has one, its projections of the sequence and of the last state.

        Outputs are laid out as PyTorch has them: a row's directions side by side.
        """
        shape, d = self._shape, layer.directions
        sizes = {"T": shape.t, "B": shape.b, "I": width, "H": shape.h, "D": d}
        states = (0, shape.h, d * shape.h, 1)
        strides = {"OutputSequenceTensor": (shape.b * d * shape.h, shape.h, d * shape.h, 1),
                   "OutputSingleTensor": states, "OutputCellSingleTensor": states}
        made = "m" if layer.projected else ""
        names = {"InputTensor": f"y{k - 1}", "OutputSequenceTensor": f"{made}y{k}", "OutputSingleTensor": f"{made}h{k}",
                 "OutputCellSingleTensor": f"c{k}", "SequenceLengthsTensor": "lengths"}
        given = {"BiasTensor": layer.has_bias, "HiddenInitTensor": shape.states, "CellMemInitTensor": shape.states,
                 "SequenceLengthsTensor": shape.lengths, "PeepholeTensor": False}
        fields = [field for field in layer.kind.cell.tensors if given.get(field, True)]
        steps = [self._step(layer.kind, sizes, fields, strides, {field: names.get(field, f"{field}{k}") for field in fields})]
        for value, count in (("y", shape.t * shape.b), ("h", shape.b)) if layer.projected else ():
            sizes = {"T": 1, "B": count, "I": d * shape.h, "H": layer.width, "D": 1}
            names = {"InputTensor": f"m{value}{k}", "WeightTensor": f"P{k}", "RecurrenceTensor": "zeros",
                     "OutputSequenceTensor": f"{value}{k}"}
            steps.append(self._step(_PROJECTION, sizes, list(names), {}, names))
        return steps

    def _step(self, kind: Kind, sizes: Mapping[str, int], fields: Sequence[str], strides: Mapping[str, Sequence[int]],
              names: Mapping[str, str]) -> Node:
        tensors = tensor_descs(kind.cell, self._shape.element, sizes, fields, strides)
        directions = (DML_RECURRENT_NETWORK_DIRECTION.FORWARD, DML_RECURRENT_NETWORK_DIRECTION.BIDIRECTIONAL)
        desc = kind.cell.desc(**tensors, **kind.attributes, ActivationDescs=kind.activations * sizes["D"],
                              Direction=directions[sizes["D"] - 1])
        return Node(from_desc(desc, None, self._shape.element), names)

    def prepare(self) -> None:
        """Make all that a run needs."""
        self._execution.prepare({})

    def run(self, name: str, parameters: Parameters, x: np.ndarray, states: Sequence[np.ndarray], lengths: np.ndarray | None
            ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Run all layers on x [T, B, I]. Returns y [T, B, D * H] and the last states, [layers * D, B, H] each.

        name: the module, in errors.
        """
        values = {"y-1": np.ascontiguousarray(x)}
        for tensor, state in zip(("HiddenInitTensor", "CellMemInitTensor"), states):
            for k, part in enumerate(np.split(state, self._layers)):
                projections = parameters.projections[k] if tensor == "HiddenInitTensor" else []
                values[f"{tensor}{k}"] = _unprojected(name, part, projections) if projections else np.ascontiguousarray(part)
        check = None
        if self._shape.element.pairs:
            given = {**parameters.arrays(), **values}
            check = RangeCheck(name, {key: key for key in (*given, *self._results)}, given)
        if lengths is not None:
            values["lengths"] = lengths.astype(np.uint32)
        results = self._execution.run(values, {key: (shape, x.dtype) for key, shape in self._results.items()})
        if check:
            check.check_results(results)
        y = results.pop(self._sequence)
        last = [np.ascontiguousarray(state.swapaxes(0, 1)) for state in results.values()]
        return y, [np.concatenate(last[start:start + self._layers]) for start in range(0, len(last), self._layers)]


def _unprojected(name: str, h: np.ndarray, projections: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The unprojected states m with P m = h, for states h [D, B, proj_size]. Refuses h for which there is no m."""
    states = []
    for state, (projection, inverse) in zip(h.astype(np.float64), projections):
        states.append(state @ inverse)
        if np.isfinite(state).all() and not np.allclose(states[-1] @ projection, state, atol=1e-6):
            raise InvalidArgumentError(name, "hx[0]", "states that weight_hr cannot make",
                                       "None, or products of weight_hr with some state")
    return np.stack(states).astype(h.dtype)


class Parameters(Contents):
    """The values of a module's parameters when they were last looked at, which its stacks compute with.

    The one copy of them is compared with the parameters, and packed from: arrays in DirectML's form are made when they are
    needed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.projections: list[list[tuple[np.ndarray, np.ndarray]]] = []
        self._seen: list[Tensor] = []
        self._directions: list[int] = []
        self._layers: list[Layer] = []
        self._snapshots: dict[Hashable, Snapshot] = {}

    def update(self, layers: Sequence[Layer]) -> None:
        """Look at the parameters again."""
        parameters = [tensor for layer in layers for directions in layer.parameters for tensor in directions]
        directions = [layer.directions for layer in layers]
        if directions == self._directions and len(parameters) == len(self._seen) and all(
                map(_are_the_same, parameters, self._seen)):
            return
        self._seen, self._directions = [tensor.detach().clone() for tensor in parameters], directions
        values = iter(self._seen)
        self._layers = [layer.holding(values) for layer in layers]
        self.projections = [layer.projections() for layer in self._layers]
        self._snapshots = dict(enumerate(snapshot for layer in self._layers for snapshot in layer.snapshots()))
        self.version += 1

    def arrays(self) -> dict[str, np.ndarray]:
        """All weights, by the field and the number of the layer."""
        return {f"{field}{k}": array for k, layer in enumerate(self._layers) for field, array in layer.arrays().items()}

    def snapshot(self, owner: Hashable) -> Snapshot:
        """The weights of a stack's node."""
        return self._snapshots[owner]


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _are_the_same(first: Tensor, second: Tensor) -> bool:
    """Whether two arrays have the same bits, NaN and -0 among them."""
    words = _WORDS[second.itemsize]
    return first.dtype is second.dtype and torch.equal(first.detach().resolve_neg().view(words), second.view(words))


def to_numpy(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_torch(array: np.ndarray) -> Tensor:
    if array.dtype.kind == "V":  # bfloat16: numpy has no kind for it, and takes microseconds to make a name
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
