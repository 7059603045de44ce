"""The dispatchables of DxDispatch's models: operators, first checked, then compiled for a device.

Sources: DxDispatch's guide, "Dispatchable: DirectML Operator" and "Timing Dispatchables".
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ...engine.weights import Contents, Snapshot
from ...operators import table
from ...operators.header.descs import DML_EXECUTION_FLAGS
from ...operators.plain_problem import PlainProblem
from ...operators.problem import Problem
from ..directml.binding import Dispatchable
from ..directml.compiled_operator import Operator
from ..directml.device import Device
from ..directml.recorder import CommandRecorder
from .reader import flags, members, operator, placed, refusal, show

Checked = Problem | PlainProblem


@dataclass(frozen=True)
class OperatorDispatchable:
    """A checked operator, and the flags to compile it with."""

    checked: Checked
    flags: DML_EXECUTION_FLAGS

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(tensor.size_in_bytes for tensor in self.checked.tensors.values() if tensor)


def dispatchable(place: str, value: object) -> OperatorDispatchable:
    """Read and check a dispatchable. Raises InvalidArgumentError, which names the place in the model."""
    at, desc = operator(place, value, ("executionFlags", "dmlCompileType"))
    given = members(place, value)
    if given.get("dmlCompileType", "DmlCompileOp") not in ("DmlCompileOp", "DmlCompileGraph"):
        raise refusal(f"{place}.dmlCompileType", show(given["dmlCompileType"]), "DmlCompileOp or DmlCompileGraph")
    execution_flags = flags(DML_EXECUTION_FLAGS)(f"{place}.executionFlags", given.get("executionFlags", "NONE"))
    with placed(f"{at}."):
        return OperatorDispatchable(table.from_desc(desc), execution_flags)


class ReadyOperator:
    """An operator compiled for a device. Each tensor has a buffer of its own, as a resource may be bound to several tensors."""

    def __init__(self, device: Device, dispatchable: OperatorDispatchable) -> None:
        self._device = device
        self._checked = dispatchable.checked
        self._compiled = device.compile_operator(Operator(self._checked), dispatchable.flags)
        self._buffers = {field: device.create_buffer(tensor.size_in_bytes)
                         for field, tensor in self._checked.tensors.items() if tensor}
        self._contents = Contents()
        self._uploaded: dict[str, Snapshot] = {}

    def run(self, bound: Mapping[str, np.ndarray], iterations: int) -> list[float]:
        """Execute the operator. Returns the milliseconds of each iteration.

        bound: by field, the resource's bytes from the tensor's first element on. OWNED_BY_DML tensors are uploaded once. The
        other inputs are uploaded before each iteration, where they have changed, and the outputs downloaded after it, so that
        an iteration can read what the last one wrote. Only the execution is timed.
        """
        owned = [field for field in self._checked.initialized if field in bound]
        inputs = [field for field in self._checked.inputs if field in bound and field not in owned]
        outputs = [field for field in self._checked.outputs if field in bound]
        self._upload(bound, owned)
        self._record(self._device.create_operator_initializer(self._compiled), owned).execute()
        recorder = self._record(self._compiled, [*inputs, *outputs])
        milliseconds = []
        for _ in range(iterations):
            self._upload(bound, inputs)
            started = time.perf_counter()
            recorder.execute()
            milliseconds.append((time.perf_counter() - started) * 1e3)
            self._download(bound, outputs)
        return milliseconds

    def _record(self, dispatchable: Dispatchable, given: Collection[str]) -> CommandRecorder:
        table = self._device.create_binding_table(dispatchable)
        table.bind_inputs([self._buffers[field] if field in given else None for field in self._checked.inputs])
        outputs = [self._buffers[field] if field in given else None for field in self._checked.outputs]
        if any(outputs):  # no initializer writes them
            table.bind_outputs(outputs)
        recorder = self._device.create_command_recorder()
        recorder.record_dispatch(dispatchable, table)
        return recorder

    def _upload(self, bound: Mapping[str, np.ndarray], given: Iterable[str]) -> None:
        """Upload what has changed; the rest stays, so that weights stay packed."""
        for field in given:
            content = bound[field][:self._buffers[field].size_in_bytes]
            self._contents.look(field, {field: field}, {field: content})
            snapshot = self._contents.snapshot(field)
            if snapshot is not self._uploaded.get(field):
                self._buffers[field].upload(content)
                self._uploaded[field] = snapshot

    def _download(self, bound: Mapping[str, np.ndarray], outputs: Iterable[str]) -> None:
        """Writes only the tensors' elements. The bytes between and behind them keep their values."""
        dtype = np.dtype(f"u{self._checked.element.itemsize}")
        for field in outputs:
            tensor = self._checked.tensor(field)
            count = tensor.size_of_elements
            target = bound[field][:count * dtype.itemsize].view(dtype)
            tensor.view(target)[...] = tensor.view(self._buffers[field].download((count,), dtype))
