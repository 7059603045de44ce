"""Inputs and outputs bound before a run, as onnxruntime.IOBinding has them. All are in the CPU's memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnxruntime
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state

from ...errors import InvalidArgumentError
from .feeds import NodeArg, expect_names
from .ort_values import array_at, ort_value, write

_CPU = "cpu"


class Described(Protocol):
    """A session, as far as a binding asks it."""

    def get_inputs(self) -> list[NodeArg]: ...
    def get_outputs(self) -> list[NodeArg]: ...


class IOBinding:
    """What a session's run takes and gives: the session's io_binding()."""

    def __init__(self, session: Described) -> None:
        self.session = session
        self._inputs_known = [arg.name for arg in session.get_inputs()]
        self._outputs_known = [arg.name for arg in session.get_outputs()]
        self._inputs: dict[str, Callable[[], Any]] = {}
        self._outputs: dict[str, Callable[[np.ndarray], object] | None] = {}
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """An array, as it is when the session runs."""
        self._bind_input("bind_cpu_input", name, lambda: arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        self._bind_input("bind_ortvalue_input", name, lambda: ortvalue)

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
                   ) -> None:
        """Memory of the CPU: the array of this type and shape that is there when the session runs."""
        array = _at("bind_input", device_type, element_type, shape, buffer_ptr)
        self._bind_input("bind_input", name, lambda: array)

    def bind_output(self, name: str, device_type: str = _CPU, device_id: int = 0, element_type: Any = None,
                    shape: Sequence[int] | None = None, buffer_ptr: int | None = None) -> None:
        """A result that copy_outputs_to_cpu and get_outputs give, and that is written to the memory of buffer_ptr, if given."""
        array = None
        if device_type != _CPU or buffer_ptr is not None:
            array = _at("bind_output", device_type, element_type, shape or (), buffer_ptr or 0)
        self._bind_output("bind_output", name, None if array is None else lambda result: _write(name, array, result))

    def bind_ortvalue_output(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        """A result that an OrtValue gets."""
        self._bind_output("bind_ortvalue_output", name, partial(write, "run_with_iobinding", name, ortvalue))

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

    def run(self, run: Callable[[list[str], Mapping[str, Any]], list[Any]]) -> None:
        """Run with what is bound. run: a session's, which takes names of outputs and a feed."""
        if not self._outputs:
            raise InvalidArgumentError("run_with_iobinding", "iobinding", "no outputs", "one or more, by bind_output")
        self._results = run(list(self._outputs), {name: value() for name, value in self._inputs.items()})
        for result, write_result in zip(self._results, self._outputs.values()):
            if write_result is not None:
                write_result(result)

    def _bind_input(self, call: str, name: str, value: Callable[[], Any]) -> None:
        expect_names(call, [name], self._inputs_known)
        self._inputs[name] = value

    def _bind_output(self, call: str, name: str, write: Callable[[np.ndarray], object] | None) -> None:
        expect_names(call, [name], self._outputs_known)
        self._outputs[name] = write


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


def _write(name: str, array: np.ndarray, result: np.ndarray) -> None:
    if (array.dtype, array.shape) != (result.dtype, result.shape):
        raise InvalidArgumentError("run_with_iobinding", name, f"bound as {array.dtype} {array.shape}",
                                   f"{result.dtype} {result.shape}, the result's")
    array[...] = result
