"""DirectML's command recorder. Source: DirectML's API reference, the interface IDMLCommandRecorder."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import NoReturn

from ...engine.commands import Commands
from ...engine.compiled import Share
from ...engine.vulkan.buffers import Buffer
from ...engine.vulkan.driver import working
from ...engine.vulkan.gpu import Gpu
from ...engine.vulkan.memory import DeviceMemory, overlap
from ...engine.vulkan.system import OfOneProcess
from ...engine.weights import OWNED, Weights, is_current
from ...errors import InvalidArgumentError, check_type
from .binding import DISPATCHABLES, BindingTable, Dispatchable, OperatorBindings, OperatorInitializer, check_overlaps
from .compiled_operator import Bindings, Named


class CommandRecorder(Named, OfOneProcess):
    """Records dispatches and copies once, and executes them any number of times (IDMLCommandRecorder, with Direct3D's command
    list and queue). Device.create_command_recorder makes it.
    """

    def __init__(self, gpu: Gpu, share: Share) -> None:
        self.gpu = gpu
        self._commands = Commands(gpu, merges=True)
        self._share = share
        self._checked = Commands(gpu, merges=True) if share.share else None  # the same, with checks against the reference
        self._recordings = [self._commands, self._checked] if self._checked else [self._commands]
        self._has_checks = False
        self._buffers: set[DeviceMemory] = set()  # that the recordings use
        for commands in self._recordings:
            commands.before_execute(partial(_expect_open, self._buffers))  # a method would make a cycle of references

    def _facts(self) -> str:
        return f"on {self.gpu.info.name}"

    def record_upload(self, buffer: Buffer) -> None:
        """Record a copy of what the host has written into a buffer to the device. What dispatches wrote since stays.

        An execution raises InvalidArgumentError in the cases that Buffer.host lists.
        """
        self._check_device("record_upload", buffer)
        for commands in self._recordings:
            commands.upload(buffer)

    def record_readback(self, buffer: Buffer) -> None:
        """Record a copy of a buffer from the device to the host. What the host wrote into it, and did not upload, stays."""
        self._check_device("record_readback", buffer)
        for commands in self._recordings:
            commands.readback(buffer)

    @working
    def record_dispatch(self, dispatchable: Dispatchable, table: BindingTable) -> None:
        """Record an initialization or an execution, with the table's current bindings (IDMLCommandRecorder::RecordDispatch).

        Some outputs may be in place, in the buffer of an input with the same strides: OutputSingleTensor in HiddenInitTensor's,
        OutputCellSingleTensor in CellMemInitTensor's, an elementwise operator's output in an input's, GEMM's in CTensor's.

        Raises InvalidArgumentError for a table of another dispatchable or with bindings missing, for an output whose buffer is
        bound to another tensor otherwise, and for an operator with OWNED_BY_DML tensors that is not initialized.
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
        """Whether an initializer in this recording packs the weights. operator: its name in errors.

        Raises InvalidArgumentError if no initializer packed them, or an earlier command here overwrites them.
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
        if gpu is not self.gpu:
            raise InvalidArgumentError(problem.operator, "record_dispatch", f"an operator of {gpu.info.name}",
                                       f"one of the recorder's device, {self.gpu.info.name}")
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
    @working
    def counts(self) -> tuple[int, int]:
        """The number of submissions and of dispatches of an execution that finds its weights packed."""
        return self._commands.counts

    @working
    def execute(self) -> None:
        """Run everything recorded, in order, and wait for it. You may write new data into the buffers and execute again.

        Raises InvalidArgumentError before any work for sequence lengths above T or indices outside of their axis that the host
        wrote, and if anything else overwrote weights that an initializer packed; DriverError when the driver fails;
        VerificationError after an operator has run, if the execution is checked and the outputs are wrong.
        """
        is_checked = self._has_checks and self._share.has_next()
        (self._checked if is_checked and self._checked else self._commands).execute()

    def execute_async(self) -> PendingExecution:
        """Begin to run everything recorded, and return at once. Executions on a device run one after the other.

        Do not write to the buffers, or record more, until it is done. When the process ends, executions that have not begun are
        dropped, and their `wait` raises DriverError. This call raises DriverError only if the system has no thread for it; all
        that `execute` may raise comes from `wait`.
        """
        return PendingExecution(self.gpu.run_in_background(self.execute))

    def _check_device(self, call: str, buffer: Buffer) -> None:
        check_type(call, "buffer", buffer, Buffer)
        if buffer.gpu is not self.gpu:
            raise InvalidArgumentError(call, "buffer", f"a buffer of {buffer.gpu.info.name}",
                                       f"one of the recorder's device, {self.gpu.info.name}")
        buffer._expect_open()
        self._buffers.add(buffer)


def _expect_open(buffers: Iterable[DeviceMemory]) -> None:
    for buffer in buffers:
        buffer._expect_open()


def _refuse_uninitialized(operator: str, call: str) -> NoReturn:
    raise InvalidArgumentError(operator, call, "an operator that is not initialized",
                               "its initializer recorded first, with the persistent resource if one is bound")


class PendingExecution:
    """An execution that may still be running. CommandRecorder.execute_async makes it."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def done(self) -> bool:
        """Whether the execution has ended, with or without an error."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the execution ends. timeout: seconds; None: as long as it takes.

        Raises what CommandRecorder.execute raises, and TimeoutError after the timeout: the execution continues, and you may
        wait again.
        """
        try:
            self._future.result(timeout)
        except FutureTimeout:
            raise TimeoutError(f"the execution has not ended within {timeout} s") from None
