"""DirectML's command recorder.

Source: DirectML's API reference, the interface IDMLCommandRecorder.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import NoReturn

from ...engine.commands import Commands
from ...engine.compiled import Share
from ...engine.vulkan.buffers import Buffer, overlap
from ...engine.vulkan.gpu import Gpu
from ...engine.vulkan.system import OfOneProcess
from ...engine.weights import OWNED, Weights, is_current
from ...errors import InvalidArgumentError, check_type
from .binding import DISPATCHABLES, BindingTable, Dispatchable, OperatorBindings, OperatorInitializer, check_overlaps
from .compiled_operator import Bindings, Named


class CommandRecorder(Named, OfOneProcess):
    """Records dispatches and copies once, executes them any number of times.

    IDMLCommandRecorder together with Direct3D's command list and queue. Made by Device.create_command_recorder.
    """

    def __init__(self, gpu: Gpu, share: Share) -> None:
        self._gpu = gpu
        self._commands = Commands(gpu, merges=True)
        self._share = share
        self._checked = Commands(gpu, merges=True) if share.share else None  # the same, with checks
        self._has_checks = False
        self._buffers: set[Buffer] = set()  # in what is recorded
        for commands in self._recordings:
            commands.before_execute(partial(_expect_open, self._buffers))  # not a method: it would hold what holds it

    @property
    def _recordings(self) -> list[Commands]:
        return [self._commands, *([self._checked] if self._checked else [])]

    @property
    def _facts(self) -> str:
        return f"on {self._gpu.info.name}"

    def record_upload(self, buffer: Buffer) -> None:
        """Bring what the host has written to its copy of a buffer to the device. What dispatches wrote since stays.

        An execution raises InvalidArgumentError for what Buffer.host says.
        """
        self._check_device("record_upload", buffer)
        for commands in self._recordings:
            commands.upload(buffer)

    def record_readback(self, buffer: Buffer) -> None:
        """Bring a buffer to the host's copy of it. What the host wrote there, and was not uploaded, stays."""
        self._check_device("record_readback", buffer)
        for commands in self._recordings:
            commands.readback(buffer)

    def record_dispatch(self, dispatchable: Dispatchable, table: BindingTable) -> None:
        """Record an initialization or an execution with what the table binds now (IDMLCommandRecorder::RecordDispatch).

        In place: the buffer of HiddenInitTensor may be OutputSingleTensor's too, that of CellMemInitTensor
        OutputCellSingleTensor's, that of an elementwise operator's input its output's, and that of GEMM's CTensor, where both
        have the same strides.

        Raises InvalidArgumentError for a table of another dispatchable or with bindings missing, for a buffer bound to an
        output and another tensor otherwise, and for an operator with OWNED_BY_DML tensors that is not initialized.
        """
        check_type("record_dispatch", "dispatchable", dispatchable, *DISPATCHABLES)
        check_type("record_dispatch", "table", table, BindingTable)
        for part in table.parts:
            self._check_part(dispatchable, table, part)
        buffers = {memory.buffer for part in table.parts
                   for memory in (*part.bound.values(), table.temporary, part.persistent) if memory}
        _expect_open(buffers)
        nodes = [node for part in table.parts for node in part.compiled.nodes(part.bound, table.temporary, part.persistent)]
        if isinstance(dispatchable, OperatorInitializer):
            self._buffers |= buffers
            for node in nodes:
                self._record_initialization(node)
            return
        operator = dispatchable.problem.operator
        needed = [weights for node in nodes if (weights := node.initialized) and not self._is_packed_here(weights, operator)]
        for weights in needed:
            for commands in self._recordings:
                commands.need(weights, partial(_refuse_uninitialized, operator, "execute"))
        self._buffers |= buffers
        for node in nodes:
            for commands in self._recordings:
                node.record(commands, is_checked=commands is self._checked)
            self._has_checks |= node.compiled.is_verified

    def _record_initialization(self, node: Bindings) -> None:
        initialized = node.initialized
        for other in self._commands.owned:
            if initialized and other != initialized and other.within and initialized.within and overlap(
                    other.within, initialized.within):
                raise InvalidArgumentError(node.compiled.problem.operator, "the persistent resource",
                                           "memory of another operator's", "memory of its own")
        for commands in self._recordings:
            node.record_initialization(commands)

    def _is_packed_here(self, weights: Weights, operator: str) -> bool:
        """Whether an initializer that was recorded here packs them. Refuses what none has packed, and what was written since.
        operator: its name in errors.
        """
        is_here = weights in self._commands.owned
        if not is_here and not is_current(weights.origin, OWNED):
            _refuse_uninitialized(operator, "record_dispatch")
        if self._commands.is_spoiled(weights):
            raise InvalidArgumentError(operator, "the persistent resource", "memory that something recorded before writes",
                                       "what the initializer left there")
        return is_here

    def _check_part(self, dispatchable: Dispatchable, table: BindingTable, part: OperatorBindings) -> None:
        problem, gpu = part.compiled.problem, part.compiled.gpu
        if gpu is not self._gpu:
            raise InvalidArgumentError(problem.operator, "record_dispatch", f"an operator of {gpu.info.name}",
                                       f"one of the recorder's device, {self._gpu.info.name}")
        if table.dispatchable is not dispatchable:
            raise InvalidArgumentError(problem.operator, "record_dispatch", "a binding table of another dispatchable",
                                       "one created for, or reset to, this one")
        if part.missing():
            raise InvalidArgumentError(problem.operator, "record_dispatch", "no binding for " + ", ".join(part.missing()),
                                       "all of them bound")
        resources = {"the temporary resource": table.temporary, "the persistent resource": part.persistent}
        check_overlaps(problem, part.bound, {name: memory for name, memory in resources.items() if memory})
        for other in table.parts:
            if other.persistent:
                check_overlaps(problem, part.bound, {"the persistent resource of another operator": other.persistent})

    @property
    def counts(self) -> tuple[int, int]:
        """How many submissions and dispatches an execution is, if weights that it takes are packed already."""
        return self._commands.counts

    def execute(self) -> None:
        """Run everything recorded, in order, and wait for it. May be called again with new contents in the buffers.

        Raises InvalidArgumentError for sequence lengths above T and indices outside of their axis that the host wrote, and
        where somebody else has written to what an initializer packed, before any work; DriverError when the driver fails; and
        VerificationError, once an operator's outputs are written, where the execution is checked and they are wrong.
        """
        with self._gpu.lock:
            is_checked = self._has_checks and self._share.has_next()
            (self._checked if is_checked and self._checked else self._commands).execute()

    def execute_async(self) -> PendingExecution:
        """Begin to run everything recorded, and return at once. Executions on a device run one after the other.

        Until it is done the buffers must not be written. A process that ends drops what has not begun, whose `wait` raises
        DriverError. Raises DriverError where the system gives no thread for it, and nothing else: its `wait` raises what
        `execute` would.
        """
        return PendingExecution(self._gpu.run_in_background(self.execute))

    def _check_device(self, call: str, buffer: Buffer) -> None:
        check_type(call, "buffer", buffer, Buffer)
        if buffer.gpu is not self._gpu:
            raise InvalidArgumentError(call, "buffer", f"a buffer of {buffer.gpu.info.name}",
                                       f"one of the recorder's device, {self._gpu.info.name}")
        buffer._expect_open()
        self._buffers.add(buffer)


def _expect_open(buffers: Iterable[Buffer]) -> None:
    for buffer in buffers:
        buffer._expect_open()


def _refuse_uninitialized(operator: str, call: str) -> NoReturn:
    raise InvalidArgumentError(operator, call, "an operator that is not initialized",
                               "its initializer recorded first, with the persistent resource if one is bound")


class PendingExecution:
    """An execution that may still run. Made by CommandRecorder.execute_async."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def done(self) -> bool:
        """Whether it has ended, with or without an error."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end. timeout: seconds; None waits as long as it takes.

        Raises TimeoutError when it has not ended by then (it runs on, and may be waited for again), and what
        CommandRecorder.execute raises.
        """
        try:
            self._future.result(timeout)
        except FutureTimeout:
            raise TimeoutError(f"the execution has not ended within {timeout} s") from None
