"""A group of nodes: one execution on the device, with what stands between the recurrent nodes.

A move is a view where the kernels can take one, else one copy on the device. What cannot be one execution runs node by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from ...engine.execution import Execution, Node
from ...engine.vulkan.store import Recent
from ...engine.weights import Contents, constant
from ...errors import DriverError, InvalidArgumentError, expect_ours
from ...operators import element_types
from ...operators.checks import element_strides, least_tensor, packed_strides, strides_of
from ...operators.copy_problem import CopiedPart, CopyProblem
from ...operators.header.descs import DML_TENSOR_DATA_TYPE
from ...operators.plain_problem import MOST_DIMENSIONS, OUTPUT
from ...operators.problem import LENGTHS, Problem, RangeCheck, check_lengths
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import SHAPES_KEPT, Session, open_device
from .graph_nodes import RECURRENT
from .linear import Linear, linear
from .moves import MovingNode, move
from .nodes import RecurrentNode, Values
from .quantized import QUANTIZED_LSTM, lstm, lstm_weights

_SEQUENCE, _SINGLE = "OutputSequenceTensor", "OutputSingleTensor"
_INT64 = 7  # ONNX's number of the type

Part = MovingNode | Linear | RecurrentNode


class DeviceRun:
    """The nodes of a group, whose values between them stay on the device.

    graph: a NodeGraph. inputs, outputs: names, in the order in which onnxruntime has them. constant_places, fed_places: the
    places of constants among the inputs, and of the others.
    """

    def __init__(self, graph: Any, inputs: Sequence[str], outputs: Sequence[str], device: Device | int | str | None,
                 options: Options) -> None:
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.constant_places = [place for place, name in enumerate(inputs) if name in graph.constants]
        self.fed_places = [place for place, name in enumerate(inputs) if name and name not in graph.constants]
        self.fed = [inputs[place] for place in self.fed_places]
        self._device, self._options = device, options
        self._opened = open_device("InferenceSession", device)
        graph.arrays = {name: constant(array) for name, array in graph.arrays.items()}
        self._build(graph)

    def _build(self, graph: Any) -> None:
        """Make all that depends on the graph's constants."""
        shapes, arrays = {name for name in self.fed if graph.kinds[name] == _INT64}, dict(graph.arrays)
        parts: list[Part] = []
        for node in graph.nodes:
            if (node.domain, node.op_type) == QUANTIZED_LSTM:
                arrays |= {name: constant(array) for name, array in lstm_weights(node, arrays).items()}
                node = lstm(node)
            if node.op_type in RECURRENT and not node.domain:
                part: Part | None = RecurrentNode(node, Session(), self._device, self._options, arrays,
                                                  graph.shapes[node.inputs[0]])
            else:
                part = move(node, arrays, graph.kinds, shapes) or linear(node, graph.constants, graph.kinds, graph.kinds, False)
            if part is None:  # it was not when the node was claimed
                raise InvalidArgumentError(str(node), "initializers", "others than the model has", "some with the same meaning")
            shapes.update(part.outputs if isinstance(part, MovingNode) and part.is_shape else ())
            parts.append(part)
        self._graph, self.parts = graph, parts
        self.recurrent = [part for part in parts if isinstance(part, RecurrentNode)]
        used = {name for part in parts for name in part.inputs}
        self._constants = {name: array for name, array in arrays.items() if name in used}
        self._moved = {name for part in parts if not isinstance(part, RecurrentNode) for name in part.inputs}
        self._calls: Recent[_ShapedCall | bool] = Recent(SHAPES_KEPT)  # False: there can be none
        self._contents: dict[Hashable, Contents] = {}  # by which nodes there are: copies depend on sizes

    def adopt(self, arrays: Sequence[np.ndarray]) -> None:
        """Take the constants as onnxruntime has them: SessionOptions.add_initializer may have others than the model."""
        given = {self.inputs[place]: array for place, array in zip(self.constant_places, arrays)}
        with self.device.gpu.lock:  # first runs of several threads come together
            graph = copy(self._graph)  # which stays where others are refused
            changed = {name: constant(array) for name, array in given.items() if not _is_same(graph.arrays.get(name), array)}
            if changed:
                graph.arrays = graph.arrays | changed
                graph.constants = graph.constants | {name: array.shape for name, array in changed.items()}
                self._build(graph)

    @property
    def device(self) -> Device:
        """The device; a new one after it was lost, unless the caller named a Device."""
        if self._opened.gpu.driver.lost:
            self._opened = open_device("InferenceSession", self._device)
        return self._opened

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, for what is fed. The nodes run one by one where they cannot be one execution, as with empty tensors."""
        with self.device.gpu.lock:
            call = self._call_for(arrays)
            if isinstance(call, _ShapedCall):
                try:
                    return call.run(arrays)
                except DriverError:
                    self._calls.drop_where(lambda kept: kept is call)
                    raise
        values: Values = {**self._constants, **dict(zip(self.fed, arrays))}
        for part in self.parts:
            values.update(part.run(values))
        return [values[name] for name in self.outputs]

    def warm_up(self, t: int, b: int) -> None:
        """Make all that a run with these sizes needs, unless weights are computed or fed. What moves are fed is unknown: then
        the recurrent nodes by themselves.
        """
        examples = {name: array for part in self.recurrent for name, array in part.examples(t, b).items()}
        if examples.keys() >= set(self.fed):
            with self.device.gpu.lock:
                call = self._call_for([examples[name] for name in self.fed])
                if isinstance(call, _ShapedCall):
                    call.execution.prepare({})
                    return
        for part in self.recurrent:
            part.warm_up(t, b)

    def problems(self, part: RecurrentNode) -> list[Problem]:
        """What a recurrent node computed in the last runs, each of the last few sizes once."""
        calls = list(self._calls.values())  # another thread may call meanwhile
        return part.session.problems() + [call.problems[part] for call in calls if isinstance(call, _ShapedCall)]

    def _call_for(self, arrays: Sequence[np.ndarray]) -> _ShapedCall | bool:
        """The call for arrays of these shapes, kept or made. False if there can be none: then nodes run one by one."""
        device = self.device
        key = device, *[array.shape for array in arrays]
        return self._calls.get(key, lambda: self._made(device, dict(zip(self.fed, arrays))))

    def _made(self, device: Device, fed: Mapping[str, np.ndarray]) -> _ShapedCall | bool:
        self._calls.drop_where(lambda call: isinstance(call, _ShapedCall) and call.execution.gpu.driver.lost is not None)
        trace = _Trace(self._constants, fed, self._moved)
        try:
            for part in self.parts:
                trace.add(part)
        except (_UnfitError, InvalidArgumentError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            expect_ours(error)
            return False
        kinds = tuple(type(node.problem) for node in trace.nodes)
        contents = self._contents.setdefault(kinds, Contents())
        return _ShapedCall(trace, self._constants, self.fed, self.outputs, device, self._options, contents)


def _is_same(kept: np.ndarray | None, array: np.ndarray) -> bool:
    return kept is not None and (kept.dtype, kept.shape) == (array.dtype, array.shape) and bool(
        np.array_equal(kept.reshape(-1).view(np.uint8), array.reshape(-1).view(np.uint8)))


class _UnfitError(Exception):
    """The device has no operators for empty tensors, copies in so many dimensions, and shapes that only a run knows."""


class _Value(NamedTuple):
    """A tensor as it will be: a view of memory that stands for a buffer, and has its size.

    buffer: the name of the value that has it for its own; of a copy a tuple, which no value's name equals.
    """

    buffer: Any
    memory: np.ndarray
    array: np.ndarray

    @property
    def is_whole(self) -> bool:
        return self.array.size == self.memory.size and self.array.flags.c_contiguous

    @property
    def begin(self) -> int:
        """The place of the first element in the buffer."""
        ours, whole = (array.__array_interface__["data"][0] for array in (self.array, self.memory))
        return int(ours - whole) // self.array.itemsize

    def views(self, arrays: Mapping[str, np.ndarray]) -> dict[str, _Value] | None:
        """Values of the same buffer; None where an array has memory of its own."""
        if not all(np.may_share_memory(array, self.memory) for array in arrays.values()):
            return None
        return {name: self._replace(array=array) for name, array in arrays.items()}


class _Trace:
    """What parts become on the device, found out by following arrays in the sizes of a call through them.

    constants, fed: arrays by name; of what is fed the sizes alone count. moved: the names of values that moves take.
    """

    def __init__(self, constants: Mapping[str, np.ndarray], fed: Mapping[str, np.ndarray], moved: Collection[str]) -> None:
        self.nodes: list[Node] = []
        self.problems: dict[RecurrentNode, Problem] = {}
        self.known: dict[str, np.ndarray] = {}  # what is computed with shapes
        self._constants, self._moved = constants, moved
        self.values = {name: _new(name, array) for name, array in {**constants, **fed}.items()}

    def add(self, part: Part) -> None:
        if any(self.values[name].array.size == 0 for name in part.inputs):
            raise _UnfitError
        if isinstance(part, RecurrentNode):
            self.values |= self._computed_by(part)
        else:
            self.values |= self._linear(part) if isinstance(part, Linear) else self._moved_by(part)

    def _moved_by(self, move: MovingNode) -> dict[str, _Value]:
        sources = [self.values[name] for name in move.inputs]
        arrays = {name: value.array for name, value in zip(move.inputs, sources)}
        if any(name not in self.known and name not in self._constants for name in move.known):
            raise _UnfitError
        if move.is_shape:
            made = move.run(arrays)
            self.known |= made
            return {name: _new(name, array) for name, array in made.items()}
        if move.node.op_type == "Concat":
            return {name: self._copied(sources, array) for name, array in move.run(arrays).items()}
        return self._views(sources[0], lambda array: move.run({**arrays, move.inputs[0]: array}))

    def _views(self, value: _Value, move: Callable[[np.ndarray], Mapping[str, np.ndarray]]) -> dict[str, _Value]:
        """The values that a move makes of one: views of its buffer, or else of a copy of it."""
        views = value.views(move(value.array))
        if views is None:
            copied = self._copied([value], value.array)
            views = copied.views(move(copied.array))
        if views is None:
            raise _UnfitError
        return views

    def _linear(self, node: Linear) -> dict[str, _Value]:
        inputs = [self.values[name] for name in node.inputs]
        lead = inputs[0].array.shape[:-1]
        flattens = node.is_product and len(lead) != 1  # all rows are one product's
        if flattens:
            inputs[0] = self._views(inputs[0], lambda array: {"": array.reshape(-1, array.shape[-1])})[""]
        inputs = [self._usable(value) for value in inputs]
        problem, shape = node.problem([value.array for value in inputs])
        if not 0 < len(shape) <= MOST_DIMENSIONS:
            raise _UnfitError
        array = np.empty((*lead, shape[-1]) if flattens else shape, node.dtype)
        result = _new(node.outputs[0], array)
        self.nodes.append(Node(problem, dict(zip(problem.tensors, [*(value.buffer for value in inputs), result.buffer]))))
        return {node.outputs[0]: result}

    def _copied(self, sources: Sequence[_Value], result: np.ndarray) -> _Value:
        """A new value of a result's shape, which the sources fill, one after the other along the axis in which it is longer."""
        value = _new(("copy", len(self.nodes)), np.empty(result.shape, result.dtype))
        data_type = DML_TENSOR_DATA_TYPE[f"UINT{8 * result.itemsize}"]
        if result.ndim >= MOST_DIMENSIONS:
            raise _UnfitError
        tensors, parts, at = {}, [], np.zeros(result.ndim, int)
        for place, source in enumerate(sources):
            # A first dimension, of which the copy takes the last element, so that it may begin anywhere. A tensor's strides are
            # positive, so a reversed dimension is copied from its end on
            field, sizes, strides = f"InputTensors[{place}]", source.array.shape, strides_of(source.array)
            starts = [size - 1 if stride < 0 else 0 for size, stride in zip(sizes, strides)]
            begin = source.begin + sum(map(mul, starts, strides))
            tensors[field] = least_tensor(data_type, (begin + 1, *sizes), (1, *map(abs, strides)), result.itemsize)
            parts.append(CopiedPart(field, (1, *sizes), (begin, *starts), (1, *[-1 if start else 1 for start in starts]),
                                    (0, *map(int, at))))
            at += np.where(np.equal(sizes, result.shape), 0, sizes)
        sizes = 1, *result.shape
        tensors[OUTPUT] = least_tensor(data_type, sizes, packed_strides(sizes), result.itemsize)
        problem = CopyProblem("a copy between nodes", element_types.any_of(data_type), tensors, tuple(tensors)[:-1], (OUTPUT,),
                              (), tuple(parts))
        names = {field: source.buffer for field, source in zip(tensors, sources)}
        self.nodes.append(Node(problem, {**names, OUTPUT: value.buffer}))
        return value

    def _computed_by(self, part: RecurrentNode) -> dict[str, _Value]:
        node, fields = part, part.fields
        inputs = {name: self._usable(self.values[name]) for name in part.inputs}
        checked = node.convert({name: value.array for name, value in inputs.items()})
        problem, shapes = node.settings.problem(node.operator, checked)
        outputs = {field: _new(fields[field], np.empty(shapes[field], inputs[part.inputs[0]].array.dtype))
                   for field in problem.outputs if problem.has(field)}
        if _SEQUENCE in outputs and fields[_SEQUENCE] in self._moved and not node.is_batch_first:
            # A row's directions side by side, as the next layer takes them: then the moves between are views
            t, d, b, h = shapes[_SEQUENCE]
            made = _new(fields[_SEQUENCE], np.empty((t, b, d, h), outputs[_SEQUENCE].array.dtype))
            outputs[_SEQUENCE] = made._replace(array=made.array.swapaxes(1, 2))
            problem, _ = node.settings.problem(node.operator, {**checked, _SEQUENCE: outputs[_SEQUENCE].array})
        if problem.steps == 1 and {_SEQUENCE, _SINGLE} <= outputs.keys() and not problem.has(LENGTHS):
            y = outputs[_SEQUENCE]  # the last h is the only one
            outputs[_SINGLE] = y._replace(array=y.array[:, 0] if node.is_batch_first else y.array[0])
            problem = replace(problem, tensors={**problem.tensors, _SINGLE: None})
        self.problems[part] = problem
        buffers = {name: value.buffer for name, value in inputs.items()}
        names = {field: buffers.get(name, name) for field, name in fields.items() if problem.has(field)}
        self.nodes.append(Node(problem, names))
        return {fields[field]: value for field, value in outputs.items()}

    def _usable(self, value: _Value) -> _Value:
        """The value as a tensor of an operator, which begins where its buffer does."""
        is_one = value.begin == 0 and element_strides(value.array) is not None
        return value if is_one else self._copied([value], value.array)


def _new(buffer: Any, array: np.ndarray) -> _Value:
    return _Value(buffer, array.reshape(-1), array)


class _ShapedCall:
    """The execution for runs on arrays of the same shapes.

    constants: arrays by name. fed, outputs: the names of what it is given, and of what it returns, in order. problems: what
    each recurrent node computes.
    """

    def __init__(self, trace: _Trace, constants: Mapping[str, np.ndarray], fed: Sequence[str], outputs: Sequence[str],
                 device: Device, options: Options, contents: Contents) -> None:
        self.problems, self._fed = trace.problems, fed
        self._name = next(iter(self.problems)).operator
        known = {**constants, **trace.known}
        self._known = {name: known[name] for name in outputs if name in known}
        found = {name: trace.values[name] for name in outputs if name not in self._known}
        uses = Counter(value.buffer for value in found.values())
        whole = {name for name, value in found.items() if uses[value.buffer] == 1 and value.is_whole}
        self._results = {value.buffer: ((value.array if name in whole else value.memory).shape, value.memory.dtype)
                         for name, value in found.items()}
        parts = {name: (value.array.shape, value.memory.dtype, value.begin * value.array.itemsize, value.array.strides)
                 for name, value in found.items() if name not in whole}
        self._outputs = [(name, found[name].buffer if name in found else "", parts.get(name)) for name in outputs]
        self._is_plain = not parts and not self._known and len(found) == len(self._results) == len(outputs)
        lengths = [(node.operator, node.fields[LENGTHS], problem.steps)
                   for node, problem in self.problems.items() if problem.has(LENGTHS)]
        for operator, name, t in lengths:
            if name in constants:
                check_lengths(operator, constants[name], t)
        self._lengths = [one for one in lengths if one[1] in fed]
        self._is_in_pairs = any(problem.element.pairs for problem in self.problems.values())
        self.execution = Execution(device.gpu, device.share, trace.nodes, self._results, options, contents, constants)
        self._constants = constants if self._is_in_pairs or self.execution.weight_names else {}

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, in order."""
        given = {**self._constants, **dict(zip(self._fed, arrays))}
        check = RangeCheck(self._name, {name: name for name in (*given, *self._results)}, given) if self._is_in_pairs else None
        for operator, name, t in self._lengths:
            check_lengths(operator, given[name], t)
            given[name] = given[name].astype(np.uint32)
        results = self.execution.run(given, self._results)
        if check:
            check.check_results(results)
        if self._is_plain:
            return list(results.values())
        return [self._known[name] if name in self._known else results[buffer] if part is None else _part(results[buffer], *part)
                for name, buffer, part in self._outputs]


def _part(memory: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any], begin: int, strides: tuple[int, ...]) -> np.ndarray:
    return np.array(np.ndarray(shape, dtype, memory, begin, strides), order="C")
