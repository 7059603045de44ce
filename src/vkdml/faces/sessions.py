"""Calls of operators on numpy arrays: what a call compiled and packed serves those like it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ..engine.execution import Execution, Node
from ..engine.vulkan.store import Recent
from ..engine.weights import Contents
from ..errors import DeviceLostError, DriverError, InvalidArgumentError, shown
from ..operators import element_types
from ..operators.arguments import DEFAULT_ATTRIBUTES, describe, onnx_shape
from ..operators.cells import STATES, Cell
from ..operators.checks import MAX_TENSOR_BYTES, element_strides
from ..operators.float64 import RangeCheck
from ..operators.problem import LENGTHS, WEIGHTS, Problem, check_lengths, from_desc
from ..planning.options import Options
from .directml.device import Device

_MOST_NUMBERS = 64  # of an attribute
SHAPES_KEPT = 64    # executions of a session, for the shapes that were called last: each is a recording of commands
_SHARED_KEPT = 256  # of the functions and of `run_node`, whatever their operators

Arrays = Mapping[str, np.ndarray | None]


class Settings:
    """What calls of an operator must have in common, besides the layouts of their arrays, to share an execution.

    attributes: ONNX's, by name; those left out have ONNX's defaults. wanted: for each of the cell's outputs whether to compute
    it. device: what Device() takes, or a Device. name: the operator's in errors. facts: all of this but the device, hashable.
    """

    def __init__(self, name: str, cell: Cell, attributes: Mapping[str, Any], wanted: Sequence[bool],
                 device: Device | int | str | None, options: Options) -> None:
        self.cell = cell
        self.attributes = {**DEFAULT_ATTRIBUTES, **{  # numpy's arrays and scalars as Python's lists and numbers
            key: value.tolist() if isinstance(value, (np.ndarray, np.generic)) and value.size <= _MOST_NUMBERS else value
            for key, value in attributes.items()}}
        self.wanted = tuple(wanted)
        self._name, self.given_device, self.options = name, device, options
        self._device = open_device(name, device)  # refuses a wrong one before any call
        if not isinstance(options, Options):
            raise InvalidArgumentError(name, "options", type(options).__name__, "vkdml.Options")
        try:
            self.facts = (cell.name, options, *self.wanted, *map(_typed, self.attributes.values()))
        except (TypeError, RecursionError):  # RecursionError: a list that holds itself
            raise InvalidArgumentError(name, "attributes", self.attributes, "numbers, strings and lists of them") from None

    @property
    def device(self) -> Device:
        """The device; a new one after it was lost, unless the caller named a Device."""
        if self._device.gpu.driver.lost:
            self._device = open_device(self._name, self.given_device)
        return self._device

    def problem(self, name: str, arrays: Arrays) -> tuple[Problem, dict[str, tuple[int, ...]]]:
        """The problem of a call with these arrays, and the shapes of its tensors in ONNX's dimensions. name: the operator's in
        errors. Outputs among the arrays tell their strides; others are packed.
        """
        given, element = {field: arrays.get(field) for field in self.cell.tensors}, element_types.of(_input(arrays).dtype)
        assert element is not None
        desc, shapes = describe(name, self.cell, given, element, self.attributes, self.wanted)
        return from_desc(desc, self.attributes["clip"], element), shapes

    def sizes(self, arrays: Arrays, t: int, b: int) -> dict[str, int]:
        """Sizes T, B, I, H, D for these weights, each at least 1."""
        w, r = arrays["WeightTensor"], arrays["RecurrenceTensor"]
        assert w is not None
        assert r is not None
        directions = 2 if self.attributes["direction"] == "bidirectional" else 1
        return {"T": t, "B": b, "I": max((1, *w.shape[-1:])), "H": max((1, *r.shape[-1:])), "D": directions}

    def zeros(self, weights: Arrays, t: int, b: int, fields: Iterable[str]) -> dict[str, np.ndarray]:
        """Arrays of zeros for other fields of a call with these weights, for T and B."""
        w, sizes = weights["WeightTensor"], self.sizes(weights, t, b)
        assert w is not None
        shapes = {field: onnx_shape(self.cell, field, self.attributes["layout"], sizes) for field in fields}
        for field, shape in shapes.items():
            if math.prod(shape) * w.itemsize > MAX_TENSOR_BYTES:
                raise InvalidArgumentError(self.cell.name, self.cell.arguments[field], shape,
                                           f"at most {MAX_TENSOR_BYTES} bytes")
        return {field: np.zeros(shape, np.int32 if field == LENGTHS else w.dtype) for field, shape in shapes.items()}


class Call(NamedTuple):
    """The execution for calls with the same settings, shapes and layouts. results: shapes and dtypes of the outputs that it
    returns, by field.
    """

    problem: Problem
    execution: Execution
    results: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]

    def is_lost(self) -> bool:
        """True if the device is lost."""
        return self.execution.gpu.driver.lost is not None


class Session:
    """Calls, of which the last few are kept. Those that differ in T, B and the layouts of arrays only share packed weights."""

    def __init__(self, kept: int = SHAPES_KEPT) -> None:
        self._calls: Recent[Call] = Recent(kept)
        self._contents: WeakValueDictionary[Hashable, Contents] = WeakValueDictionary()  # by what shares them

    def run(self, name: str, settings: Settings, arrays: Arrays) -> list[np.ndarray]:
        """The wanted outputs, in ONNX's shapes and the type of the input.

        name: the operator's in errors. arrays: by field, as `convert` and `convert_to` return them.
        """
        device = settings.device
        with device.gpu.lock:
            key = _key(settings, device, arrays)
            call = self._call(name, key, settings, device, arrays)
            given = {field: array for field, array in arrays.items() if array is not None}
            check = self._check_range(name, settings, given) if call.problem.element.pairs else None
            if LENGTHS in given:
                check_lengths(name, given[LENGTHS], call.problem.steps)
                given[LENGTHS] = given[LENGTHS].astype(np.uint32)
            try:
                results = call.execution.run(given, call.results)
            except DriverError:
                self._calls.drop(key)
                raise
            if check:
                check.check_results(results)
            return list(results.values())

    def prepare(self, name: str, settings: Settings, arrays: Arrays) -> Call:
        """Make all that calls like this one need."""
        device = settings.device
        with device.gpu.lock:
            call = self._call(name, _key(settings, device, arrays), settings, device, arrays)
            call.execution.prepare({field: array for field in WEIGHTS if (array := arrays.get(field)) is not None})
            return call

    def problems(self) -> list[Problem]:
        """Problems of the calls that are kept, the last one last."""
        return [call.problem for call in self._calls.values()]

    def _call(self, name: str, key: Hashable, settings: Settings, device: Device, arrays: Arrays) -> Call:
        """The call of a key, made if it is not there."""
        return self._calls.get(key, lambda: self._made(name, settings, device, arrays))

    def _made(self, name: str, settings: Settings, device: Device, arrays: Arrays, carried: Mapping[str, str] = {},
              carrier: Execution | None = None) -> Call:
        """A new call. carried: inputs by the outputs that become them. carrier: an execution that carries the same.

        Calls on lost devices are dropped: a device keeps its memory as long as anything on it is kept.
        """
        self._calls.drop_where(Call.is_lost)
        problem, shapes = settings.problem(name, arrays)
        dtype = _input(arrays).dtype
        weights = [array.shape for field in WEIGHTS if (array := arrays.get(field)) is not None]
        # By the device's identity: a key that holds a device would keep one that is lost
        contents = self._contents.setdefault((id(device.gpu), settings.facts, dtype, *weights), Contents())
        results = {field: (shapes[field], dtype) for field in problem.outputs if problem.has(field) and field not in carried}
        names = {field: field for field, tensor in problem.tensors.items() if tensor is not None}
        execution = Execution(device.gpu, device.share, [Node(problem, names)], results, settings.options, contents, carried,
                              carrier)
        return Call(problem, execution, results)

    def _check_range(self, name: str, settings: Settings, arrays: Mapping[str, np.ndarray]) -> RangeCheck:
        return RangeCheck(name, settings.cell.arguments, arrays)


def _input(arrays: Arrays) -> np.ndarray:
    x = arrays["InputTensor"]
    assert x is not None
    return x


def _key(settings: Settings, device: Device, arrays: Arrays) -> Hashable:
    return device, settings.facts, _input(arrays).dtype, *[
        None if (array := arrays.get(field)) is None else
        (array.shape, None if array.flags.c_contiguous else element_strides(array)) for field in settings.cell.inputs]


class StatefulSession(Session):
    """Calls of which each begins with the states that the one before ended with. These stay on the device.

    Calls take no arrays for them, and return none. After a call that failed they are as before, unless the device is lost: then
    calls raise DeviceLostError until the state is written.

    name: the operator's in errors. state: what the first call begins with, by input; all are of one batch size, which stays.
    """

    def __init__(self, name: str, settings: Settings, state: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self._name, self._settings = name, settings
        self._carried = {output: field for output, field in STATES.items() if field in state}
        self._carrier: Execution | None = None
        self.write(state)

    def write(self, state: Mapping[str, np.ndarray]) -> None:
        """Set the states that the next call begins with, by input: all of them, in the shapes of the first ones."""
        self._check_before: RangeCheck | None = None
        if all(array.dtype == np.float64 for array in state.values()):
            self._check_range(self._name, self._settings, state)
        self._state = {field: array.copy() for field, array in state.items()}
        self._is_on_device = False

    def read(self) -> dict[str, np.ndarray]:
        """The states that the next call begins with, by input."""
        self._check_state()
        with self._settings.device.gpu.lock:
            if self._is_on_device:
                assert self._carrier is not None
                return {field: self._carrier.read(field, array.shape, array.dtype) for field, array in self._state.items()}
            return {field: array.copy() for field, array in self._state.items()}

    def _check_state(self) -> None:
        """Raises DeviceLostError where the state was lost with its device."""
        if self._is_on_device and self._carrier is not None and self._carrier.gpu.driver.lost:
            raise DeviceLostError(f"{self._name}: the state was on a device that is lost: reset it or set it to go on")

    def enter(self) -> None:
        """Bring a state that was written to the device. A call must have been prepared."""
        if not self._is_on_device:
            assert self._carrier is not None
            for field, array in self._state.items():
                self._carrier.write(field, array)
            self._is_on_device = True

    def _call(self, name: str, key: Hashable, settings: Settings, device: Device, arrays: Arrays) -> Call:
        self._check_state()
        if self._carrier is not None and self._carrier.gpu is not device.gpu:
            self._carrier = None
        call = self._calls.get(key, lambda: self._made(name, settings, device, {**arrays, **self._state}, self._carried,
                                                       self._carrier))
        self._carrier = self._carrier or call.execution
        self.enter()
        return call

    def _check_range(self, name: str, settings: Settings, arrays: Mapping[str, np.ndarray]) -> RangeCheck:
        self._check_before = RangeCheck(name, settings.cell.arguments, arrays, self._check_before)
        return self._check_before


shared_session = Session(_SHARED_KEPT)


def shapes_to_warm_up(name: str, T: int | Iterable[int] | None, B: int | Iterable[int]) -> list[tuple[int, int]]:
    """All pairs of a T and a B. Raises InvalidArgumentError unless they are whole numbers from 1."""
    sizes = []
    for argument, given in (("T", T), ("B", B)):
        numbers: list[Any]
        try:
            numbers = list(given) if isinstance(given, Iterable) else [given]
        except TypeError:  # arrays of numpy and PyTorch without dimensions
            numbers = [given]
        wrong = [number for number in numbers if not isinstance(number, int | np.integer) or number < 1]
        if wrong:
            raise InvalidArgumentError(name, f"warm_up: {argument}", shown(wrong[0]), "whole numbers from 1")
        sizes.append([int(number) for number in numbers])
    return [(t, b) for t in sizes[0] for b in sizes[1]]


def open_device(name: str, device: Device | int | str | None) -> Device:
    """A Device, or the one of that index or name, or the default one for None: each opened once, and again after it was lost.

    Raises DeviceLostError for a Device that is lost.
    """
    if isinstance(device, Device):
        if device.gpu.driver.lost:
            raise DeviceLostError(device.gpu.driver.lost)
        return device
    if not isinstance(device, (int, str, NoneType)):
        raise InvalidArgumentError(name, "device", type(device).__name__,
                                   "a Device, its index, UUID, PCI address, a part of its name or None")
    found = _devices.get(device)
    if found is None or found.gpu.driver.lost:
        found = _devices[device] = Device(device)
    return found


_devices: dict[int | str | None, Device] = {}


def _typed(value: Any) -> Any:
    """An attribute as a part of a key: 1, 1.0 and True are equal, but not all of them are right everywhere. Raises TypeError
    for a value that cannot be hashed.
    """
    if isinstance(value, (list, tuple)):
        return tuple(map(_typed, value))
    if type(value) not in (bool, int, float, str, NoneType):
        hash(value)
    return type(value), value
