"""Calls of one operator on numpy arrays: what they have in common is made once, and what depends on their shapes is kept."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from ..engine.execution import Execution, Node
from ..engine.vulkan.store import Recent
from ..engine.vulkan.system import Lock
from ..engine.weights import Contents
from ..errors import DeviceLostError, DriverError, InvalidArgumentError, shown
from ..operators.arguments import DEFAULT_ATTRIBUTES, convert, describe, onnx_shape
from ..operators.cells import STATES, Cell
from ..operators.checks import MAX_TENSOR_BYTES, element_strides, flat
from ..operators.element_types import ElementType
from ..operators.problem import MAX_FLOAT32, WEIGHTS, Problem, check_lengths, from_desc
from ..planning.options import Options
from .directml.device import Device

_MOST_NUMBERS = 64  # of an attribute
SHAPES_KEPT = 64  # executions of a session, for the shapes that were called last: each is a recording of commands

# float64: each number is computed as a pair of float32 numbers, so it must fit a float32
_IN_RANGE = f"numbers up to {MAX_FLOAT32:.3g}: float64 is computed in pairs of float32 numbers"

Arrays = Mapping[str, np.ndarray | None]


def by_field_and_attribute(cell: Cell, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of a function or a layer, by their names: its arrays by field, and its attributes."""
    arrays = {field: given[name] for field in cell.inputs if (name := cell.arguments[field].lower()) in given}
    return arrays, {name: given[name] for name in DEFAULT_ATTRIBUTES if name in given}


class Settings:
    """Settings that calls of an operator must have in common, besides their weights, to share a session.

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
            hash(self.facts)
        except (TypeError, RecursionError):  # RecursionError: a list that holds itself
            raise InvalidArgumentError(name, "attributes", self.attributes, "numbers, strings and lists of them") from None

    @property
    def device(self) -> Device:
        """The device; a new one after it was lost, unless the caller named a Device."""
        if self._device.gpu.driver.lost:
            self._device = open_device(self._name, self.given_device)
        return self._device

    def problem(self, name: str, arrays: Arrays, element: ElementType) -> tuple[Problem, dict[str, tuple[int, ...]]]:
        """The problem of a call with these arrays, and the shapes of its tensors in ONNX's dimensions. name: the operator's in
        errors. Outputs among the arrays tell their strides; others are packed.
        """
        given = {field: arrays.get(field) for field in self.cell.tensors}
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
        """Arrays for other fields of a call with these weights."""
        w, sizes = weights["WeightTensor"], self.sizes(weights, t, b)
        assert w is not None
        shapes = {field: onnx_shape(self.cell, field, self.attributes["layout"], sizes) for field in fields}
        for field, shape in shapes.items():
            if math.prod(shape) * w.itemsize > MAX_TENSOR_BYTES:
                raise InvalidArgumentError(self.cell.name, self.cell.arguments[field], shape,
                                           f"at most {MAX_TENSOR_BYTES} bytes")
        return {field: np.zeros(shape, np.int32 if field == "SequenceLengthsTensor" else w.dtype)
                for field, shape in shapes.items()}


class Session:
    """Calls that differ in shapes and memory layouts, an execution kept for each; the weights are packed once for all.

    element: the type of all arrays but the lengths.
    """

    def __init__(self, settings: Settings, element: ElementType) -> None:
        self.settings = settings
        self.element = element
        self._calls: Recent[Call] = Recent(SHAPES_KEPT)
        self._contents = Contents()
        self._check_before: RangeCheck | None = None
        # What a StreamSession has
        self._state: Mapping[str, np.ndarray] = {}
        self._carried: Mapping[str, str] = {}
        self._carrier: Execution | None = None

    def run(self, name: str, arrays: Arrays) -> list[np.ndarray]:
        """The wanted outputs, in ONNX's shapes and the type of the input.

        name: the operator's in errors. arrays: by field, as `convert` and `convert_to` return them.
        """
        device = self.settings.device
        with device.gpu.lock:
            key = self._key(device, arrays)
            call = self._call(name, key, device, arrays)
            check = self._check_range(name, arrays) if self.element.pairs else None
            given = {field: array for field, array in arrays.items() if array is not None}
            lengths = given.get("SequenceLengthsTensor")
            if lengths is not None:
                check_lengths(name, lengths, call.problem.steps)
                given["SequenceLengthsTensor"] = lengths.astype(np.uint32)
            try:
                results = call.execution.run(given, call.results)
            except DriverError:
                self._calls.drop(key)
                raise
            if check:
                check.check_results(results)
            return list(results.values())

    def prepare(self, name: str, arrays: Arrays) -> Call:
        """Make all that calls like this one need."""
        device = self.settings.device
        with device.gpu.lock:
            call = self._call(name, self._key(device, arrays), device, arrays)
            call.execution.prepare({field: array for field in WEIGHTS if (array := arrays.get(field)) is not None})
            return call

    def _key(self, device: Device, arrays: Arrays) -> Hashable:
        return device, *[None if (array := arrays.get(field)) is None else
                         (array.shape, None if array.flags.c_contiguous else element_strides(array))
                         for field in self.settings.cell.inputs]

    def _call(self, name: str, key: Hashable, device: Device, arrays: Arrays) -> Call:
        """The call of a key, made if it is not there."""
        return self._calls.get(key, lambda: self._made(name, device, arrays))

    def _made(self, name: str, device: Device, arrays: Arrays) -> Call:
        """A new call. A device that is lost keeps its memory as long as anything on it is kept."""
        self._calls.drop_where(Call.is_lost)
        return Call(name, self, device, {**arrays, **self._state}, self._contents, self._carried, self._carrier)

    def problems(self) -> list[Problem]:
        """Problems of the calls that are kept, the last one last."""
        return [call.problem for call in list(self._calls.values())]  # a list, as another thread may call meanwhile

    def is_lost(self) -> bool:
        """Whether the devices of all its calls are lost."""
        return all(call.is_lost() for call in self._calls.values())

    def _check_range(self, name: str, arrays: Arrays) -> RangeCheck:
        memory = {field: flat(array) for field, array in arrays.items() if array is not None}
        return RangeCheck(name, self.settings.cell.arguments, memory, self._check_before)


class Call:
    """The execution for calls with the same shapes and layouts.

    carried: inputs by the outputs that stay in their place. carrier: where such values are by now. results: shapes and dtypes
    of the outputs that it returns, by field.
    """

    def __init__(self, name: str, session: Session, device: Device, arrays: Arrays, contents: Contents,
                 carried: Mapping[str, str], carrier: Execution | None) -> None:
        settings, element = session.settings, session.element
        self.problem, shapes = settings.problem(name, arrays, element)
        outputs = [field for field in self.problem.outputs if self.problem.has(field) and field not in carried]
        names = {field: field for field, tensor in self.problem.tensors.items() if tensor is not None}
        x = arrays["InputTensor"]
        assert x is not None
        self.results = {field: (shapes[field], x.dtype) for field in outputs}
        self.execution = Execution(device.gpu, device.share, [Node(self.problem, names)], outputs, settings.options, contents,
                                   carried, carrier)

    def is_lost(self) -> bool:
        """True if the device is lost."""
        return self.execution.gpu.driver.lost is not None


class StatefulSession(Session):
    """Calls of which each begins with the states that the one before ended with. These stay on the device.

    Calls take no arrays for them, and return none. After a call that failed they are as before, unless the device is lost: then
    calls raise DeviceLostError until the state is written.

    state: what the first call begins with, by input; all are of one batch size, which stays.
    """

    def __init__(self, name: str, settings: Settings, element: ElementType, state: Mapping[str, np.ndarray]) -> None:
        super().__init__(settings, element)
        self._name = name
        self._carried = {output: field for output, field in STATES.items() if field in state}
        self.write(name, state)

    def write(self, name: str, state: Mapping[str, np.ndarray]) -> None:
        """Set the states that the next call begins with, by input: all of them, in the shapes of the first ones."""
        self._check_before = None
        if self.element.pairs:
            self._check_range(name, state)
        self._state = {field: array.copy() for field, array in state.items()}
        self._is_on_device = False

    def read(self) -> dict[str, np.ndarray]:
        """The states that the next call begins with, by input."""
        self._check_state()
        with self.settings.device.gpu.lock:
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

    def _call(self, name: str, key: Hashable, device: Device, arrays: Arrays) -> Call:
        self._check_state()
        if self._carrier is not None and self._carrier.gpu is not device.gpu:
            self._carrier = None
        call = super()._call(name, key, device, arrays)
        self._carrier = self._carrier or call.execution
        self.enter()
        return call

    def _check_range(self, name: str, arrays: Arrays) -> RangeCheck:
        self._check_before = super()._check_range(name, arrays)
        return self._check_before


class SessionCache:
    """The last few sessions, by settings, element type and shapes of the weights. kept: how many."""

    def __init__(self, kept: int) -> None:
        self._sessions: Recent[Session] = Recent(kept)
        self._lock = Lock()

    def run(self, name: str, cell: Cell, arrays: Mapping[str, Any], attributes: Mapping[str, Any], wanted: Sequence[bool],
            device: Device | int | str | None = None, options: Options = Options()) -> list[np.ndarray]:
        """Run a cell on arrays by field, in ONNX's shapes (see `gru`); None where an optional one is left out.

        The other arguments are those of Settings. Returns the wanted outputs, in ONNX's shapes and the type of the input.
        Raises InvalidArgumentError, and DriverError.
        """
        checked, element = convert(name, cell, arrays)
        return self.session(Settings(name, cell, attributes, wanted, device, options), element, checked).run(name, checked)

    def session(self, settings: Settings, element: ElementType, arrays: Arrays) -> Session:
        """The session of calls with weights of these shapes."""
        weights = [array.shape for field in WEIGHTS if (array := arrays.get(field)) is not None]
        key = (settings.device, *settings.facts, element, *weights)
        with self._lock:
            return self._sessions.get(key, lambda: self._made(settings, element))

    def problems(self) -> list[Problem]:
        """Problems of the calls that are kept."""
        with self._lock:
            return [problem for session in self._sessions.values() for problem in session.problems()]

    def _made(self, settings: Settings, element: ElementType) -> Session:
        """Make a session, and drop those whose device is lost, as they would keep its memory."""
        self._sessions.drop_where(Session.is_lost)
        return Session(settings, element)


shared_sessions = SessionCache(kept=16)


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
    """A Device, or the one of that index or name, or the default one for None: each opened once, and anew after it was lost.

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
    """A part of the key. 1, 1.0 and True are equal, but not all of them are right everywhere."""
    return tuple(map(_typed, value)) if isinstance(value, (list, tuple)) else (type(value), value)


class RangeCheck:
    """Refuses inputs out of range, and results of finite inputs that are not finite: something on the way was out of range.

    name: the operator's in errors. names: what errors call the arrays and the results, by their keys. arrays: the inputs, of
    any shapes. before: the check of a call whose results are inputs of this one.
    """

    def __init__(self, name: str, names: Mapping[str, str], arrays: Mapping[str, np.ndarray],
                 before: RangeCheck | None = None) -> None:
        self._name = name
        self._names = names
        self._is_finite: bool = before is None or before._is_finite
        for key, array in arrays.items():
            finite = np.isfinite(array)
            self._is_finite = self._is_finite and bool(finite.all())
            largest = np.abs(array, where=finite, out=np.zeros_like(array)).max()
            if largest > MAX_FLOAT32:
                raise InvalidArgumentError(name, names[key], largest, _IN_RANGE)

    def check_results(self, results: Mapping[str, np.ndarray]) -> None:
        """Refuse results out of range. results: by key. Raises InvalidArgumentError."""
        for key, result in results.items():
            if self._is_finite and not np.isfinite(result).all():
                raise InvalidArgumentError(self._name, self._names[key], "numbers out of range on the way", _IN_RANGE)
