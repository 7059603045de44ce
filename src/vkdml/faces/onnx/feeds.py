"""What is fed to a session and what it returns."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, ValueInfoProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state

from ...errors import InvalidArgumentError, shown
from ...operators.arguments import as_array
from . import graphs
from .ort_values import array_at, array_of, ort_value, view, write

_CPU = "cpu"


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model, as onnxruntime.NodeArg has it.

    type: such as "tensor(float)". shape: a number, the name of a dynamic dimension or None for each dimension.
    """

    name: str
    type: str
    shape: list[int | str | None]


class Inputs:
    """The inputs that must be fed, as the model declares them. args: onnxruntime's words for them."""

    def __init__(self, declared: Sequence[ValueInfoProto], args: Mapping[str, NodeArg]) -> None:
        self.args = [args[value.name] for value in declared]
        self._declared = {value.name: value for value in declared}
        self._tensors = {value.name: (helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), graphs.sizes(value))
                         for value in declared if value.type.HasField("tensor_type")}

    def feed(self, input_feed: Mapping[str, Any], others: Mapping[str, Any] = {}) -> list[Any]:
        """The inputs in order; optional ones may be missing. Refuses other types and sizes than the model declares.

        others: values for some inputs, which are not in the feed then.
        """
        if not isinstance(input_feed, Mapping):
            raise InvalidArgumentError("run", "input_feed", type(input_feed).__name__, "a dictionary of arrays by name")
        names = [name for name in self._declared if name not in others]
        expect_names("input_feed", input_feed, names)
        missing = [name for name in names if name not in input_feed and not self._declared[name].type.HasField("optional_type")]
        if missing:
            raise InvalidArgumentError("run", "input_feed", f"nothing for {missing[0]!r}", "all of " + ", ".join(names))
        given = {**dict.fromkeys(self._declared), **input_feed, **others}
        return [self.check(name, given[name]) for name in self._declared]

    def check(self, name: str, value: Any) -> Any:
        """The value for an input, as an array. Refuses other types and sizes than declared; onnxruntime checks sequences."""
        if name not in self._tensors:
            return value
        if isinstance(value, onnxruntime.OrtValue):
            try:
                value = array_of(value)
            except RuntimeError:
                found = f"an OrtValue, {value.data_type()}"
                raise InvalidArgumentError("run", f"input_feed: {name}", found, "an array") from None
        array = as_array("run", f"input_feed: {name}", value)
        tensor, (dtype, sizes) = self._declared[name].type.tensor_type, self._tensors[name]
        if isinstance(value, list | int | float):
            array = _converted(name, array, dtype)
        is_text = array.dtype.kind in "OUS" or array.dtype.type is np.void  # void: with what it holds behind a zero byte
        if array.dtype != dtype and not (tensor.elem_type == TensorProto.STRING and is_text):
            raise InvalidArgumentError("run", f"input_feed: {name}", array.dtype, str(dtype))
        fits = array.ndim == len(sizes) and all(size in (None, found) for size, found in zip(sizes, array.shape))
        if sizes and not fits:  # in the place of a scalar onnxruntime takes any shape
            shape = next(arg.shape for arg in self.args if arg.name == name)
            raise InvalidArgumentError("run", f"input_feed: {name}", f"the shape {array.shape}", str(shape))
        return array

    def zeros(self, name: str) -> np.ndarray:
        """Zeros for an input that is a tensor of numbers. Sizes that the model does not declare are 1."""
        dtype, sizes = self._tensors[name]
        return np.zeros([1 if size is None else size for size in sizes], dtype)


def _converted(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A list or number in the declared type, as onnxruntime converts lists. Refuses numbers that the type does not hold."""
    if array.dtype.kind not in "biuf" or dtype.kind not in "biufV":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype)
    is_kept = np.isfinite(converted.astype(np.float64)) == np.isfinite(array)
    if dtype.kind in "biu":
        is_kept &= converted == array
    if not is_kept.all():
        raise InvalidArgumentError("run", f"input_feed: {name}", array[~is_kept].flat[0], f"numbers that {dtype} holds")
    return converted


def expect_names(argument: str, names: Collection[str] | None, allowed: Sequence[str]) -> list[str]:
    """Names as a list, empty for None. Raises InvalidArgumentError for others than are allowed."""
    if isinstance(names, str) or not isinstance(names, Sequence | Set | Mapping | None):
        raise InvalidArgumentError("run", argument, shown(names), "a list of names")
    known = set(allowed)
    for name in () if names is None else names:
        if not isinstance(name, str) or name not in known:
            raise InvalidArgumentError("run", argument, shown(name), "one of " + ", ".join(allowed))
    return [] if names is None else list(names)


def own(result: Any, fed: Sequence[Any]) -> Any:
    """The result, copied if it is a constant of the model or an array that was fed, so that the caller may write to it."""
    is_shared = isinstance(result, np.ndarray) and (not result.flags.writeable or any(result is value for value in fed))
    return result.copy() if is_shared else result


class IOBinding:
    """What a session's run takes and gives, bound before it, as onnxruntime.IOBinding has it: the session's io_binding().

    All is in the CPU's memory.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, onnxruntime.OrtValue | None] = {}
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """An array, as it is when the session runs."""
        self._bind_input("bind_cpu_input", name, arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        self._bind_input("bind_ortvalue_input", name, ortvalue)

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
                   ) -> None:
        """Memory of the CPU: the array of this type and shape that is there when the session runs."""
        self._bind_input("bind_input", name, _at("bind_input", device_type, element_type, shape, buffer_ptr))

    def bind_output(self, name: str, device_type: str = _CPU, device_id: int = 0, element_type: Any = None,
                    shape: Sequence[int] | None = None, buffer_ptr: int | None = None) -> None:
        """A result that copy_outputs_to_cpu and get_outputs give, and that is written to the memory of buffer_ptr, if given."""
        memory = None
        if device_type != _CPU or buffer_ptr is not None:
            memory = view(_at("bind_output", device_type, element_type, shape or (), buffer_ptr or 0))
        self._bind_output("bind_output", name, memory)

    def bind_ortvalue_output(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        """A result that an OrtValue gets."""
        self._bind_output("bind_ortvalue_output", name, ortvalue)

    def clear_binding_inputs(self) -> None:
        self._inputs = {}

    def clear_binding_outputs(self) -> None:
        self._outputs, self._results = {}, []

    def synchronize_inputs(self) -> None:
        """Nothing: the CPU's memory is there."""

    def synchronize_outputs(self) -> None:
        """Nothing: a run returns when its results are there."""

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of the results of the last run, in the order in which the outputs were bound."""
        return copy.deepcopy(self._results)

    def get_outputs(self) -> list[onnxruntime.OrtValue]:
        """The same as OrtValues."""
        return [ort_value(result) for result in self._results]

    def get_outputs_as_ortvaluevector(self) -> onnxruntime_pybind11_state.OrtValueVector:
        """The same in a vector."""
        vector = onnxruntime_pybind11_state.OrtValueVector()
        for value in self.get_outputs():
            vector.push_back(value._get_c_value())
        return vector

    def run(self, run_options: onnxruntime.RunOptions | None) -> None:
        """Run the session with what is bound."""
        if not self._outputs:
            raise InvalidArgumentError("run_with_iobinding", "iobinding", "no outputs", "one or more, by bind_output")
        self._results = self.session.run(list(self._outputs), self._inputs, run_options)
        for result, (name, bound) in zip(self._results, self._outputs.items()):
            if bound is not None:
                write("run_with_iobinding", name, bound, result)

    def _bind_input(self, call: str, name: str, value: Any) -> None:
        expect_names(call, [name], [arg.name for arg in self.session.get_inputs()])
        self._inputs[name] = value

    def _bind_output(self, call: str, name: str, bound: onnxruntime.OrtValue | None) -> None:
        expect_names(call, [name], [arg.name for arg in self.session.get_outputs()])
        self._outputs[name] = bound


def _at(call: str, device_type: str, element_type: Any, shape: Sequence[int], address: int) -> np.ndarray:
    """The array in the CPU's memory."""
    if device_type != _CPU:
        raise InvalidArgumentError(call, "device_type", repr(device_type), f"{_CPU!r}, whose memory sessions use")
    try:
        known = helper.tensor_dtype_to_np_dtype(element_type) if isinstance(element_type, int) else element_type
        dtype: Any = np.dtype(known)
    except (KeyError, TypeError):
        raise InvalidArgumentError(call, "element_type", repr(element_type), "a numpy dtype, or a number of ONNX") from None
    return array_at(address, dtype, shape)
