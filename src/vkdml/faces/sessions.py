"""Sessions run operators on numpy arrays. They keep an Execution for each layout of the arrays, and share packed weights."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache, partial
from itertools import accumulate, cycle, groupby
from types import NoneType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ..engine.execution import Execution, Node, Turn
from ..engine.vulkan.store import Recent
from ..engine.weights import Contents
from ..errors import DeviceLostError, DriverError, InvalidArgumentError, shown
from ..operators import element_types
from ..operators.arguments import describe, onnx_shape, with_defaults
from ..operators.cells import STATES, Cell
from ..operators.checks import MAX_TENSOR_BYTES, check_bytes, element_strides
from ..operators.header.fields import Structure
from ..operators.problem import LENGTHS, WEIGHTS, Problem, RangeCheck, check_lengths, from_desc
from ..planning.options import Options
from .directml.device import Device

SHAPES_KEPT = 64  # a session keeps the executions of so many shapes: each is a recording of commands
_CHUNK_BYTES, _MOST_CHUNKS = 2**21, 10  # of a long call: bytes of x and y in each, and how many; see `_chunks`
_SHARED_KEPT = 256  # the session of the functions and of `run_node` keeps so many, for all operators together

Arrays = Mapping[str, np.ndarray | None]


class Settings:
    """An operator's attributes, wanted outputs, device and options. Calls with equal ones and equal layouts share an execution.

    attributes: ONNX's, by name; those left out have ONNX's defaults. wanted: for each of the cell's outputs whether to compute
    it. device: a Device, or what Device() takes. name: the operator's in errors. facts: all of this but the device, hashable.
    """

    def __init__(self, name: str, cell: Cell, attributes: Mapping[str, Any], wanted: Sequence[bool],
                 device: Device | int | str | None, options: Options) -> None:
        self.cell, self.wanted = cell, tuple(wanted)
        self._name, self.given_device, self.options = name, device, options
        # A given one is refused now if it is wrong. The default one is opened by the first call, which a child process may make
        self._device = None if device is None else open_device(name, device)
        if not isinstance(options, Options):
            raise InvalidArgumentError(name, "options", type(options).__name__, "vkdml.Options")
        try:
            read = _read if _PLAIN.issuperset(map(type, attributes.values())) else _read.__wrapped__
            self.attributes, typed = read(**attributes)
            self.facts = (cell.name, options, *self.wanted, *typed)
        except (TypeError, RecursionError):  # RecursionError: a list that holds itself
            raise InvalidArgumentError(name, "attributes", attributes, "numbers, strings and lists of them") from None

    def __str__(self) -> str:
        return f"{self.attributes['direction']} on {self._device.info.name if self._device else 'the default device'}"

    @property
    def device(self) -> Device:
        """The device. If it was lost, it is opened again, unless the caller gave a Device."""
        if self._device is None or self._device.gpu.driver.lost:
            self._device = open_device(self._name, self.given_device)
        return self._device

    def problem(self, name: str, arrays: Arrays) -> tuple[Problem, dict[str, tuple[int, ...]]]:
        """Check a call with these arrays. Returns its problem, and the shapes of its tensors in ONNX's dimensions.

        name: the operator's in errors. Outputs among the arrays get their strides; others are packed.
        """
        element = element_types.of(_array(arrays, "InputTensor").dtype)
        assert element is not None
        given = {field: arrays.get(field) for field in self.cell.tensors}
        desc, shapes = describe(name, self.cell, given, element, self.attributes, self.wanted)
        return from_desc(desc, self.attributes["clip"], element), shapes

    def zeros(self, weights: Arrays, t: int, b: int, fields: Iterable[str]) -> dict[str, np.ndarray]:
        """Arrays of zeros for the named fields, in the shapes that T, B and the weights imply."""
        w, r = _array(weights, "WeightTensor"), _array(weights, "RecurrenceTensor")
        sizes = {"T": t, "B": b, "I": max((1, *w.shape[-1:])), "H": max((1, *r.shape[-1:])),
                 "D": 2 if self.attributes["direction"] == "bidirectional" else 1}
        shapes = {field: onnx_shape(self.cell, field, self.attributes["layout"], sizes) for field in fields}
        for field, shape in shapes.items():
            check_bytes(self.cell.name, self.cell.arguments[field], math.prod(shape) * w.itemsize)
        return {field: np.zeros(shape, np.int32 if field == LENGTHS else w.dtype) for field, shape in shapes.items()}


class Call(NamedTuple):
    """An execution for calls with equal settings, shapes and layouts. results: shapes and dtypes of the outputs, by field.

    chunks: of steps, in which a long call runs: executions, each with the steps of its runs, in order. execution: the first.
    """

    problem: Problem
    execution: Execution
    results: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    chunks: Sequence[tuple[Execution, Sequence[slice]]] = ()


class Session:
    """Runs operators, and keeps the last few calls. Calls that differ only in T, B and the layouts of arrays share weights."""

    def __init__(self, kept: int = SHAPES_KEPT, weights: Mapping[str, np.ndarray] = {}) -> None:
        self._weights = dict(weights)  # constants by field, which calls leave out
        self._calls: Recent[Call] = Recent(kept)
        self._contents: WeakValueDictionary[Hashable, Contents] = WeakValueDictionary()  # calls with an equal key share one

    def run(self, name: str, settings: Settings, arrays: Arrays) -> list[np.ndarray]:
        """Run an operator. Returns the wanted outputs, in ONNX's shapes and the type of the input.

        name: the operator's in errors. arrays: by field, as `convert` and `convert_to` return them.
        """
        device, given = settings.device, {field: array for field, array in arrays.items() if array is not None}
        if not (x := given["InputTensor"]).flags.c_contiguous:
            given["InputTensor"] = _in_whole_vectors(x)
        with device.gpu.lock:
            call = self._call(name, settings, device, given)
            check = RangeCheck(name, settings.cell.arguments, self._weights | given) if call.problem.element.pairs else None
            if LENGTHS in given:
                check_lengths(name, given[LENGTHS], call.problem.steps)
                given[LENGTHS] = given[LENGTHS].astype(np.uint32)
            try:
                results = (device.gpu.lock.work(_run_in_chunks, call, given, settings.attributes["layout"]) if call.chunks else
                           call.execution.run(given, call.results))
            except DriverError:
                self._calls.drop_where(lambda kept: kept is call)
                raise
            if check:
                check.check_results(results)
            return list(results.values())

    def prepare(self, name: str, settings: Settings, arrays: Arrays) -> Call:
        """Compile and pack all that calls like this one need."""
        device, given = settings.device, {field: array for field, array in arrays.items() if array is not None}
        with device.gpu.lock:
            call = self._call(name, settings, device, given)
            for execution in dict.fromkeys([call.execution, *(one for one, _ in call.chunks)]):
                execution.prepare({field: given[field] for field in WEIGHTS & given.keys()})
            return call

    def problems(self) -> list[Problem]:
        """The problems of the calls that are kept, from the oldest to the last."""
        return [call.problem for call in self._calls.values()]

    def _call(self, name: str, settings: Settings, device: Device, arrays: Mapping[str, np.ndarray]) -> Call:
        """Find the call for these settings and layouts, or make it."""
        key = device, settings.facts, arrays["InputTensor"].dtype, *arrays, *[
            array.shape if array.flags.c_contiguous else (array.shape, element_strides(array)) for array in arrays.values()]
        return self._calls.get(key, lambda: self._made(name, settings, device, {**self._weights, **arrays}))

    def _made(self, name: str, settings: Settings, device: Device, arrays: Mapping[str, np.ndarray]) -> Call:
        """Make a call, and drop those on lost devices: a device keeps its memory as long as anything on it is kept."""
        self._calls.drop_where(lambda call: call.execution.gpu.driver.lost is not None)
        problem, shapes = settings.problem(name, arrays)
        dtype = arrays["InputTensor"].dtype
        weights = [arrays[field].shape for field in WEIGHTS if field in arrays]
        # The id, because a key with the device in it would keep a lost device alive
        contents = self._contents.setdefault((id(device.gpu), settings.facts, dtype, *weights), Contents())
        results = {field: (shapes[field], dtype) for field in problem.outputs if problem.has(field)}

        def execution(problem: Problem, turns: int) -> Execution:
            nodes = [Node(problem, {field: field for field, tensor in problem.tensors.items() if tensor is not None})]
            return Execution(device.gpu, device.share, nodes, results, settings.options, contents, self._weights, turns)

        chunks, slices = [], _chunks(device, problem)
        for size, group in groupby(slices, lambda steps: steps.stop - steps.start) if len(slices) > 1 else ():
            given = ["InputTensor", *STATES.values() & settings.cell.inputs.keys(), *[LENGTHS] * problem.has(LENGTHS)]
            zeros = settings.zeros(arrays, size, problem.batch, given)
            part, _ = settings.problem(name, {field: arrays.get(field) for field in WEIGHTS} | zeros)
            chunks.append((execution(part, 2), list(group)))
        return Call(problem, chunks[0][0] if chunks else execution(problem, 1), results, chunks)


def _chunks(device: Device, problem: Problem) -> list[slice]:
    """Return the steps of the runs that compute a problem, in order: chunks if it is long and the GPU discrete, else all.

    Chunks give the same bits, as a stream's steps do, if states are float32. A run that may be checked is not cut.
    """
    is_whole = (problem.directions > 1 or problem.element != element_types.FLOAT32 or not all(map(problem.has, problem.outputs))
                or device.gpu.host_memory or device.share.share)
    size = problem.steps * problem.batch * (problem.input_size + problem.hidden) * problem.element.itemsize
    count = 1 if is_whole else min(size // _CHUNK_BYTES + 1, _MOST_CHUNKS, problem.steps)
    least, longer = divmod(problem.steps, count)
    sizes = [least + 1] * longer + [least] * (count - longer)
    slices = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes))]
    return slices[::-1] if problem.reverse[0] else slices


def _run_in_chunks(call: Call, given: Mapping[str, np.ndarray], batch_first: bool) -> dict[str, np.ndarray]:
    """Run the chunks of a call, each from the states after the one before. While the device computes one, the host copies the
    outputs of the chunk before and the inputs of the next.
    """
    results = {field: np.empty(shape, dtype) for field, (shape, dtype) in call.results.items()}
    along_steps = (lambda array: array.swapaxes(0, 1)) if batch_first else (lambda array: array)
    x, y = along_steps(given["InputTensor"]), along_steps(results["OutputSequenceTensor"])
    lengths = given.get(LENGTHS, np.full(1, call.problem.steps)).reshape((-1, 1, 1) if batch_first else (1, -1, 1))  # as states
    states = {output: results[output] for output in STATES if output in results}
    for output, state in states.items():  # rows without a step end at 0
        np.copyto(state, np.where(lengths > 0, given.get(STATES[output], np.zeros(1, state.dtype)), 0))

    def copy(out: Iterable[tuple[Turn, slice]], into: Iterable[tuple[Turn, slice]]) -> None:
        for turn, steps in out:
            part = along_steps(y[steps])
            np.copyto(part, turn.view("OutputSequenceTensor", part.shape, part.dtype))
        for turn, steps in into:
            part = along_steps(x[steps])
            np.copyto(turn.view("InputTensor", part.shape, part.dtype), part)
            if LENGTHS in given:
                past = np.clip(lengths, steps.start, steps.stop) - steps.start
                np.copyto(turn.view(LENGTHS, past.shape, np.uint32), past, casting="unsafe")

    for execution, chunks in call.chunks:
        runs = list(zip(cycle(execution.prepared(given)), chunks))
        copy((), runs[:1])
        for place, (turn, steps) in enumerate(runs):
            for output, state in states.items():
                np.copyto(turn.view(STATES[output], state.shape, state.dtype), state)
            turn.commands.execute(partial(copy, runs[place - 1:place], runs[place + 1:place + 2]))
            goes_on = lengths > steps.start if LENGTHS in given else True
            for output, state in states.items():
                np.copyto(state, turn.view(output, state.shape, state.dtype), where=goes_on)
        copy(runs[-1:], ())
    return results


def _in_whole_vectors(x: np.ndarray) -> np.ndarray:
    """Copy an input that kernels for contiguous ones, which `warm_up` compiles, cannot read: its vectors have gaps."""
    strides = None if x.shape[-1] % 4 else element_strides(x)
    if not strides or (strides[-1] == 1 and not any(stride % 4 for stride in strides[:-1])) or x.nbytes > MAX_TENSOR_BYTES:
        return x
    return np.ascontiguousarray(x)


def _array(arrays: Arrays, field: str) -> np.ndarray:
    array = arrays[field]
    assert array is not None
    return array


shared_session = Session(_SHARED_KEPT)


def shapes_to_warm_up(name: str, T: int | Iterable[int] | None, B: int | Iterable[int]) -> list[tuple[int, int]]:
    """Pair each T with each B. Raises InvalidArgumentError unless all are whole numbers from 1."""
    sizes = []
    for argument, given in (("T", T), ("B", B)):
        try:
            numbers: list[Any] = list(given) if isinstance(given, Iterable) else [given]
        except TypeError:  # from arrays of numpy and PyTorch without dimensions
            numbers = [given]
        wrong = [number for number in numbers if not isinstance(number, int | np.integer) or number < 1]
        if wrong:
            raise InvalidArgumentError(name, f"warm_up: {argument}", shown(wrong[0]), "whole numbers from 1")
        sizes.append([int(number) for number in numbers])
    return [(t, b) for t in sizes[0] for b in sizes[1]]


def open_device(name: str, device: Device | int | str | None) -> Device:
    """Return the Device itself, or open the device of this index or name, once, and again after it was lost.

    name: the caller's in errors. device: None: the default one. Raises DeviceLostError for a Device that is lost.
    """
    if isinstance(device, Device):
        if device.gpu.driver.lost:
            raise DeviceLostError(device.gpu.driver.lost)
        return device
    if not isinstance(device, (int, np.integer, str, NoneType)):
        raise InvalidArgumentError(name, "device", shown(device),
                                   "a Device, its index, UUID, PCI address, a part of its name or None")
    found = _devices.get(device)
    if found is None or found.gpu.driver.lost:
        found = _devices[device] = Device(device)
    return found


_devices: dict[int | str | None, Device] = {}
_PLAIN = {bool, int, float, str, NoneType}


@lru_cache(typed=True)
def _read(**attributes: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return copies of all attributes, and what identifies them. The cache is for attributes of plain types."""
    found = {name: _copied(value) for name, value in with_defaults(attributes).items()}
    typed = tuple(map(_typed, found.values()))
    hash(typed)  # raises TypeError if it cannot be a key
    return found, typed


def _copied(value: Any) -> Any:
    """Copy what its caller may change later: lists, and DirectML's structures."""
    if isinstance(value, (list, tuple)):
        return list(map(_copied, value))
    return deepcopy(value) if isinstance(value, Structure) else value


def _typed(value: Any) -> Any:
    """Pair an attribute with its type, for a key: 1, 1.0 and True are equal, but not all of them are right everywhere."""
    return tuple(map(_typed, value)) if isinstance(value, list) else (type(value), value)
