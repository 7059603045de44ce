"""Recurrent nodes with nothing but moves between them: one execution on the device.

A move is a view where the kernels can take one, else one copy on the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ...engine.execution import Execution, Node
from ...engine.vulkan.store import Recent
from ...engine.weights import Contents
from ...errors import DriverError
from ...operators import element_types
from ...operators.checks import element_strides, least_tensor, packed_strides
from ...operators.copy_problem import CopyProblem
from ...operators.copy_problem import Move as CopiedPart
from ...operators.float64 import RangeCheck
from ...operators.header.descs import DML_TENSOR_DATA_TYPE
from ...operators.plain_problem import MOST_DIMENSIONS, OUTPUT
from ...operators.problem import LENGTHS, Problem, check_lengths
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import SHAPES_KEPT
from . import graphs
from .linear import Linear, steps
from .moves import Move
from .steps import RecurrentStep, RunOptions, Scope, Values, expect_going

_SEQUENCE = "OutputSequenceTensor"


class MoveStep:
    """A move, or a node of a linear layer, on the host, in numpy."""

    def __init__(self, move: Move | Linear, scope: Scope) -> None:
        self.move = move
        self.inputs, self.outputs = move.inputs, move.outputs
        kind = graphs.tensor_type(move.kind) if move.kind else graphs.without_shape(scope.type_of(self.inputs[0]))
        scope.types.update(dict.fromkeys(self.outputs, kind))

    def run(self, values: Values, run_options: RunOptions) -> None:
        made = self.move.of(*(values[name] for name in self.inputs))
        values.update({name: np.array(array, order="C") for name, array in made.items()})


Part = MoveStep | RecurrentStep


class DeviceRun:
    """Parts in the order in which they run, whose values between them stay on the device.

    outputs: what others use of what the parts make.
    """

    def __init__(self, parts: Sequence[Part], outputs: Collection[str], scope: Scope) -> None:
        self.parts = parts
        self.outputs = sorted(outputs)
        self.recurrent = [part for part in parts if isinstance(part, RecurrentStep)]
        made = {name for part in parts for name in part.outputs}
        self._inputs = sorted({name for part in parts for name in part.inputs} - made)
        self._constants = {name: scope.arrays[name] for name in self._inputs if name in scope.arrays}
        self._fed = [name for name in self._inputs if name not in self._constants]
        self._moved = {name for part in parts if isinstance(part, MoveStep) for name in part.inputs}
        self._calls: Recent[_Call] = Recent(SHAPES_KEPT)
        self._contents: dict[Hashable, Contents] = {}  # by which nodes there are: copies depend on sizes
        for part in self.recurrent:
            part.others = partial(self._problems, part)

    def run(self, values: Values, run_options: RunOptions) -> None:
        """Run the parts: one by one where a tensor is empty, and where a profile is to tell what each took."""
        first = self.recurrent[0]
        expect_going(first.node.operator, run_options)
        device = first.node.settings.device
        fed = {name: np.asarray(values[name], order="C") for name in self._fed}
        with device.gpu.lock:
            key = _key(device, fed)
            call = None if first.context.ort.profile else self._call(key, device, fed)
            if call:
                try:
                    values.update(call.run(fed))
                except DriverError:
                    self._calls.drop(key)
                    raise
        if call is None:
            for part in self.parts:
                part.run(values, run_options)

    def warm_up(self, t: int, b: int) -> None:
        """Make all that a run with these sizes needs, unless weights are computed or fed. What moves are fed is unknown: then
        the recurrent nodes by themselves.
        """
        examples = {name: array for part in self.recurrent for name, array in part.examples(t, b).items()}
        if not examples.keys() >= set(self._fed):
            for part in self.recurrent:
                part.warm_up(t, b)
            return
        device = self.recurrent[0].node.settings.device
        fed = {name: examples[name] for name in self._fed}
        with device.gpu.lock:
            call = self._call(_key(device, fed), device, fed)
            if call:
                call.execution.prepare(self._constants)

    def _problems(self, part: RecurrentStep) -> list[Problem]:
        return [call.problems[part] for call in list(self._calls.values())]  # another thread may call meanwhile

    def _call(self, key: Hashable, device: Device, fed: Mapping[str, np.ndarray]) -> _Call | None:
        """The call of a key, made if it is not there. None where there can be none."""
        try:
            return self._calls.get(key, lambda: self._made(device, fed))
        except _UnfitError:
            return None

    def _made(self, device: Device, fed: Mapping[str, np.ndarray]) -> _Call:
        self._calls.drop_where(_Call.is_lost)
        trace = _Trace({**self._constants, **fed}, self._moved)
        for part in self.parts:
            trace.add(part)
        kinds = tuple(type(node.problem) for node in trace.nodes)
        contents = self._contents.setdefault(kinds, Contents())
        return _Call(trace, self._constants, self.outputs, device, self.recurrent[0].context.options, contents)


def _key(device: Device, fed: Mapping[str, np.ndarray]) -> Hashable:
    return device, *((array.dtype, array.shape) for array in fed.values())


class _UnfitError(Exception):
    """What the device has no operators for: empty tensors, and copies in more dimensions than kernels have."""


class _Value(NamedTuple):
    """A tensor as it will be: a view of memory that stands for a buffer, and has its size."""

    buffer: str
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

    given: what is fed, and constants. moved: the names of values that moves take.
    """

    def __init__(self, given: Mapping[str, np.ndarray], moved: Collection[str]) -> None:
        self.nodes: list[Node] = []
        self.problems: dict[RecurrentStep, Problem] = {}
        self.known: dict[str, np.ndarray] = {}  # what is computed with shapes
        self._moved = moved
        self.values = {name: _new(name, array) for name, array in given.items()}

    def add(self, part: Part) -> None:
        if any(self.values[name].array.size == 0 for name in part.inputs):
            raise _UnfitError
        if isinstance(part, RecurrentStep):
            self.values |= self._computed_by(part)
        else:
            self.values |= self._linear(part.move) if isinstance(part.move, Linear) else self._moved_by(part.move)

    def _moved_by(self, move: Move) -> dict[str, _Value]:
        source, *others = [self.values[name] for name in move.inputs]
        rest = [value.array for value in others]
        made = move.of(source.array, *rest)
        if move.is_shape:
            self.known |= made
            return {name: _new(name, array) for name, array in made.items()}
        if move.node.op_type == "Concat":
            return {name: self._copied([source, *others], array) for name, array in made.items()}
        views = source.views(made)
        if views is None:
            source = self._copied([source], source.array)
            views = source.views(move.of(source.array, *rest))
        if views is None:
            raise _UnfitError
        return views

    def _linear(self, node: Linear) -> dict[str, _Value]:
        inputs = [self.values[name] for name in node.inputs]
        *lead, last = inputs[0].array.shape
        flattens = node.is_product and len(lead) != 1  # all rows are one product's
        if flattens:
            rows = {"": inputs[0].array.reshape(-1, last)}
            inputs[0] = (inputs[0].views(rows) or {"": self._copied(inputs[:1], rows[""])})[""]
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
        value = _new(f"{sources[0].buffer} (copy {len(self.nodes)})", np.empty(result.shape, result.dtype))
        data_type = DML_TENSOR_DATA_TYPE[f"UINT{8 * result.itemsize}"]
        if result.ndim >= MOST_DIMENSIONS:
            raise _UnfitError
        zeros, ones = (0,) * result.ndim, (1,) * (1 + result.ndim)
        tensors, parts, at = {}, [], np.zeros(result.ndim, int)
        for place, source in enumerate(sources):
            # A first dimension, of which the copy takes the last element, so that it may begin anywhere
            field, begin, sizes = f"InputTensors[{place}]", source.begin, source.array.shape
            tensors[field] = least_tensor(data_type, (begin + 1, *sizes), (1, *steps(source.array)), result.itemsize)
            parts.append(CopiedPart(field, (1, *sizes), (begin, *zeros), ones, (0, *map(int, at))))
            at += np.where(np.equal(sizes, result.shape), 0, sizes)
        sizes = 1, *result.shape
        tensors[OUTPUT] = least_tensor(data_type, sizes, packed_strides(sizes), result.itemsize)
        problem = CopyProblem("a copy between nodes", element_types.any_of(data_type), tensors, tuple(tensors)[:-1], (OUTPUT,),
                              (), tuple(parts))
        names = {field: source.buffer for field, source in zip(tensors, sources)}
        self.nodes.append(Node(problem, {**names, OUTPUT: value.buffer}))
        return value

    def _computed_by(self, part: RecurrentStep) -> dict[str, _Value]:
        node, fields = part.node, part.node.fields
        inputs = {name: self._usable(self.values[name]) for name in part.inputs}
        checked, _ = node.convert({name: value.array for name, value in inputs.items()})
        problem, shapes = node.settings.problem(node.operator, checked)
        outputs = {field: _new(fields[field], np.empty(shapes[field], inputs[part.inputs[0]].array.dtype))
                   for field in problem.outputs if problem.has(field)}
        if _SEQUENCE in outputs and fields[_SEQUENCE] in self._moved and not node.is_batch_first:
            # A row's directions side by side, as the next layer takes them: then the moves between are views
            t, d, b, h = shapes[_SEQUENCE]
            made = _new(fields[_SEQUENCE], np.empty((t, b, d, h), outputs[_SEQUENCE].array.dtype))
            outputs[_SEQUENCE] = made._replace(array=made.array.swapaxes(1, 2))
            problem, _ = node.settings.problem(node.operator, {**checked, _SEQUENCE: outputs[_SEQUENCE].array})
        self.problems[part] = problem
        buffers = {name: value.buffer for name, value in inputs.items()}
        self.nodes.append(Node(problem, {field: buffers.get(name, name) for field, name in fields.items()}))
        return {fields[field]: value for field, value in outputs.items()}

    def _usable(self, value: _Value) -> _Value:
        """The value as a tensor of an operator, which begins where its buffer does."""
        is_one = value.begin == 0 and element_strides(value.array) is not None
        return value if is_one else self._copied([value], value.array)


def _new(buffer: str, array: np.ndarray) -> _Value:
    return _Value(buffer, array.reshape(-1), array)


class _Call:
    """The execution for runs on arrays of the same shapes and types.

    problems: what each recurrent part computes. constants: what is not fed. outputs: the names of the values that it returns.
    """

    def __init__(self, trace: _Trace, constants: Mapping[str, np.ndarray], outputs: Sequence[str], device: Device,
                 options: Options, contents: Contents) -> None:
        self.nodes, self.problems, self._constants = trace.nodes, trace.problems, constants
        self._name = next(iter(self.problems)).node.operator
        self._known = {name: trace.known[name] for name in outputs if name in trace.known}
        found = {name: trace.values[name] for name in outputs if name not in self._known}
        uses = Counter(value.buffer for value in found.values())
        whole = {name for name, value in found.items() if uses[value.buffer] == 1 and value.is_whole}
        self._results = {value.buffer: ((value.array if name in whole else value.memory).shape, value.memory.dtype)
                         for name, value in found.items()}
        self._outputs = [(name, value.buffer, None if name in whole else
                          (value.array.shape, value.memory.dtype, value.begin * value.array.itemsize, value.array.strides))
                         for name, value in found.items()]
        self._lengths = [(part.node.operator, part.node.fields[LENGTHS], problem.steps)
                         for part, problem in self.problems.items() if problem.has(LENGTHS)]
        self._is_in_pairs = any(problem.element.pairs for problem in self.problems.values())
        self.execution = Execution(device.gpu, device.share, trace.nodes, self._results, options, contents, constants=constants)

    def is_lost(self) -> bool:
        """True if the device is lost."""
        return self.execution.gpu.driver.lost is not None

    def run(self, fed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs, by name."""
        given, lengths = {**self._constants, **fed}, {}
        for operator, name, t in self._lengths:
            if name in given:  # constants are not, once they were looked at
                check_lengths(operator, given[name], t)
                lengths[name] = given[name].astype(np.uint32)
        check = RangeCheck(self._name, {name: name for name in (*given, *self._results)}, given) if self._is_in_pairs else None
        results = self.execution.run({**given, **lengths}, self._results)
        if check:
            check.check_results(results)
        elif self.execution.weight_names <= self._constants.keys():  # which were looked at now, and stay as they are
            self._constants = {}
        arrays = {name: array.copy() for name, array in self._known.items()}
        for name, buffer, part in self._outputs:
            arrays[name] = results[buffer] if part is None else _part(results[buffer], *part)
        return arrays


def _part(memory: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, begin: int, strides: tuple[int, ...]) -> np.ndarray:
    return np.array(np.ndarray(shape, dtype, memory, begin, strides), order="C")
