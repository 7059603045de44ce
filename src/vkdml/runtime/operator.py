"""DirectML's device, which makes all other objects, and its command recorder.

The life cycle is DirectML's: create, compile, initialize, bind, record, execute. Weights and biases are bound to an
execution, which packs them when they have changed. Described as OWNED_BY_DML, which DirectML does not support for recurrent
operators, they are bound to the initializer, which packs them once.

Source: DirectML's API reference, the interfaces IDMLDevice, IDMLOperator, IDMLCompiledOperator, IDMLOperatorInitializer,
IDMLBindingTable and IDMLCommandRecorder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from ..planning.device_info import DeviceInfo
from ..planning.options import SCHEDULES, Options
from ..spec import cells, features, operators
from ..spec import problem as problems
from ..spec.checks import CheckedOperator, unwrap_operator
from ..spec.descs import DML_EXECUTION_FLAGS
from ..spec.features import DML_FEATURE
from . import vulkan
from .binding import BindingTable
from .checked import record_checked, record_owned
from .commands import Commands
from .compiled import CompiledOperator, Dispatchable, Operator, OperatorInitializer, check_type
from .device import Buffer, Gpu, open_device, select_again, select_device
from .float64 import check_float64
from .fork import Lock, OfOneProcess
from .naming import Named
from .packed import PackedWeights
from .self_test import Outcome, check_driver, expect_right, outcomes
from .verification import Share


def _schedule_of_environment() -> str | None:
    name = os.environ.get("VKDML_SCHEDULE") or None
    if name not in (None, *SCHEDULES):
        raise InvalidArgumentError("compile_operator", "VKDML_SCHEDULE", shown(name), "one of " + ", ".join(SCHEDULES))
    return name


class CommandRecorder(Named, OfOneProcess):
    """Records dispatches and copies once, executes them any number of times.

    IDMLCommandRecorder together with Direct3D's command list and queue. Made by Device.create_command_recorder.
    """

    def __init__(self, gpu: Gpu, share: Share) -> None:
        self._gpu = gpu
        self._commands = Commands(gpu)
        self._initialized: list[PackedWeights] = []
        self._share = share
        self._checked = Commands(gpu) if share.share else None  # the same, with checks
        self._has_checks = False

    @property
    def _recordings(self) -> list[Commands]:
        return [self._commands, *([self._checked] if self._checked else [])]

    @property
    def _facts(self) -> str:
        return f"on {self._gpu.info.name}"

    def record_upload(self, buffer: Buffer) -> None:
        """Bring the host's copy of a buffer to the device."""
        self._check_device("record_upload", buffer)
        for commands in self._recordings:
            commands.upload(buffer)

    def record_readback(self, buffer: Buffer) -> None:
        """Bring a buffer to the host's copy of it."""
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
        check_type("record_dispatch", "table", table, BindingTable)
        problem = table.compiled.problem
        if table.compiled.gpu is not self._gpu:
            raise InvalidArgumentError(problem.operator, "record_dispatch", f"an operator of {table.compiled.gpu.info.name}",
                                       f"one of the recorder's device, {self._gpu.info.name}")
        if table.dispatchable is not dispatchable:
            raise InvalidArgumentError(problem.operator, "record_dispatch", "a binding table of another dispatchable",
                                       "one created for, or reset to, this one")
        if table.missing():
            raise InvalidArgumentError(problem.operator, "record_dispatch", "no binding for " + ", ".join(table.missing()),
                                       "all of them bound")
        _check_aliases(problem, table.bound)
        if isinstance(dispatchable, OperatorInitializer):
            if problem.initialized:
                self._record_initialization(dispatchable.compiled, table.bound)
            return
        if problem.initialized and not dispatchable.packed.is_initialized and dispatchable.packed not in self._initialized:
            raise InvalidArgumentError(problem.operator, "record_dispatch", "an operator that is not initialized",
                                       "its initializer recorded first")
        for commands in self._recordings:
            check_values_before(commands, problem, table.bound)
            is_checked = commands is self._checked and dispatchable.is_verified
            self._has_checks |= is_checked
            if is_checked:
                record_checked(commands, dispatchable, table.bound)
            else:
                dispatchable.record(commands, table.bound)

    def _record_initialization(self, compiled: CompiledOperator, bound: Mapping[str, Buffer]) -> None:
        for commands in self._recordings:
            if compiled.is_verified:
                record_owned(commands, compiled, bound)
            compiled.record_packing(commands, bound, compiled.packed.buffers)
        self._initialized.append(compiled.packed)

    @property
    def counts(self) -> tuple[int, int]:
        """How many submissions and dispatches an execution is, if weights that it takes are packed already."""
        return self._commands.counts

    def execute(self) -> None:
        """Run everything recorded, in order, and wait for it. May be called again with new contents in the buffers.

        Raises InvalidArgumentError for sequence lengths above T and indices outside of their axis that the host wrote, before
        any work; DriverError when the driver fails; and VerificationError, once an operator's outputs are written, where the
        execution is checked and they are wrong.
        """
        with self._gpu.lock:
            for packed in self._initialized:
                packed.is_initialized = False  # stays so if the driver fails
            is_checked = self._has_checks and self._share.has_next()
            (self._checked if is_checked and self._checked else self._commands).execute()
            for packed in self._initialized:
                packed.is_initialized = True

    def execute_async(self) -> Execution:
        """Begin to run everything recorded, and return at once. Executions on a device run one after the other.

        Until it is done the buffers must not be written. Raises DriverError where the system gives no thread for it, and
        nothing else: its `wait` raises what `execute` would.
        """
        return Execution(self._gpu.run_in_background(self.execute))

    def _check_device(self, call: str, buffer: Buffer) -> None:
        if not isinstance(buffer, Buffer):
            raise InvalidArgumentError(call, "buffer", type(buffer).__name__, "a Buffer")
        if buffer.gpu is not self._gpu:
            raise InvalidArgumentError(call, "buffer", f"a buffer of {buffer.gpu.info.name}",
                                       f"one of the recorder's device, {self._gpu.info.name}")


class Execution:
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


def check_values_before(commands: Commands, problem: CheckedOperator, buffers: Mapping[str, Buffer]) -> None:
    """Check sequence lengths and indices, if an operator has any, at each execution. Of those that a dispatch before it writes
    the host knows nothing: the kernels bound them.
    """
    field = problem.checked_input
    if field is None or commands.writes(buffers[field]):
        return
    size, buffer = problem.tensor(field).size_in_bytes, buffers[field]
    commands.before_execute(lambda: problem.check_values(buffer.read((size,), np.uint8)))


def _check_aliases(problem: CheckedOperator, bound: dict[str, Buffer]) -> None:
    """Refuse an output without a buffer of its own, unless it is in place."""
    for output in problem.outputs:
        allowed = problem.in_place.get(output, ())
        for field, buffer in bound.items():
            if field != output and buffer is bound.get(output) and not (
                    field in allowed and problem.tensor(field).strides == problem.tensor(output).strides):
                raise InvalidArgumentError(problem.operator, output, f"the buffer of {field} too", "a buffer of its own")


def _opened_again(index: int, name: str, verify: float) -> Device:
    return Device(select_again(index, name).index, verify=verify)


def _checked_limit(name: str, limit: Any) -> int:
    if type(limit) is not int or limit < 0:
        raise InvalidArgumentError("Device", name, shown(limit), "a whole number of bytes")
    return int(limit)


class Device(Named):
    """A Vulkan device that runs DirectML's recurrent operators and those around them (IDMLDevice).

    device: an index or a part of a name (in any case) from Device.enumerate(). By default what the environment variable
    VKDML_DEVICE says, which is either of these, or else the first GPU, or else the first CPU driver. It is opened once in a
    process, and in a child process that os.fork made of that one it cannot be used. Once the driver has lost it
    (DeviceLostError), this object and all that was made on it raise that error, and a new Device opens it anew.

    verify: which share of the calls on it to check against the float64 reference, from 0 to 1: evenly spread, the first one
    among them. A wrong result raises VerificationError. An execution of a recorder is a call: it checks each operator that was
    compiled on the same device. By default what the environment variable VKDML_VERIFY says, or else 0.

    Raises DriverError when there is none, or none that matches; InvalidArgumentError for another share.
    """

    def __init__(self, device: int | str | None = None, *, verify: float | None = None) -> None:
        self.share = Share(verify)
        self._gpu = open_device(select_device(device))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self._gpu is other._gpu and self.verify == other.verify

    def __hash__(self) -> int:
        return hash((self._gpu, self.verify))

    @property
    def _facts(self) -> str:
        return f"on {self.info.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the device of this index and name, or else of this name; limits that were set stay here."""
        return _opened_again, (self.info.index, self.info.name, self.verify), {"_name": self._name}

    @staticmethod
    def enumerate() -> list[DeviceInfo]:
        """All Vulkan devices, in the order of their indices."""
        return vulkan.enumerate_devices()

    @property
    def info(self) -> DeviceInfo:
        """The device's name, driver and limits."""
        return self._gpu.info

    def get_device_removed_reason(self) -> str | None:
        """Why the device is lost and cannot be used any more; None: it can be (IDMLDevice::GetDeviceRemovedReason)."""
        return self._gpu.driver.lost

    def check_feature_support(self, feature: DML_FEATURE, query: Any) -> Any:
        """Answer a DML_FEATURE_QUERY_* structure with a DML_FEATURE_DATA_* one (IDMLDevice::CheckFeatureSupport).

        FEATURE_LEVELS: the highest of those that are asked for, up to the last one of which all that it says of the operators
        here is here. TENSOR_DATA_TYPE_SUPPORT: whether any operator here takes tensors of a type.

        Raises InvalidArgumentError for another feature or structure, and where no level that is asked for is supported.
        """
        return features.check_support(feature, query)

    @property
    def verify(self) -> float:
        """The share of calls that are checked."""
        return self.share.share

    @property
    def cache_limit(self) -> int:
        """Bytes of what the process keeps on this device at most: compiled pipelines, scratch buffers and packed weights.

        What was not used for the longest is dropped, and made again when it is needed. At first what the environment variable
        VKDML_CACHE_BYTES says, or else 1 GiB. May be set.
        """
        return self._gpu.store.limit

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        checked = _checked_limit("cache_limit", limit)
        with self._gpu.lock:
            self._gpu.store.limit = checked

    @property
    def memory_limit(self) -> int:
        """Bytes of all buffers that the process has on this device at most, with the host's copies of them.

        Before a call goes above it, those are dropped that are kept but not in use; then it gets plans that need less, which
        changes no result; or else an InvalidArgumentError refuses it before anything is allocated. At first what the
        environment variable VKDML_MEMORY_BYTES says, or else 80% of info.memory. May be set.
        """
        return self._gpu.memory.limit

    @memory_limit.setter
    def memory_limit(self, limit: int) -> None:
        self._gpu.memory.limit = _checked_limit("memory_limit", limit)

    @property
    def lock(self) -> Lock:
        """A reentrant context manager, held during every execution.

        Hold it around writes, an execution and reads that belong together.
        """
        return self._gpu.lock

    def selftest(self) -> list[Outcome]:
        """Run each kernel that the device may be given, for each cell in each type, and check it by the float64 reference.

        It compiles all of them, which takes a CPU driver half a minute where nothing was kept from before.
        Raises VerificationError, which names the device, its driver, and what is wrong with which kernels.
        """
        return expect_right(self._gpu, self.selftest_outcomes())

    def selftest_outcomes(self) -> Iterator[Outcome]:
        """What `selftest` looks at, one by one: also what is wrong."""
        return outcomes(self._gpu)

    def create_operator(self, desc: Any, *, clip: float | None = None) -> Operator:
        """Check an operator descriptor (IDMLDevice::CreateOperator): a DML_OPERATOR_DESC or the structure alone.

        clip: ONNX's attribute of that name, for a recurrent operator.

        Raises InvalidArgumentError, before anything is allocated.
        """
        inner = unwrap_operator(desc)
        if clip is None:
            return Operator(operators.from_desc(inner))
        if type(inner) not in cells.BY_DESC:
            raise InvalidArgumentError(type(inner).__name__, "clip", clip, "None: only a recurrent operator has it")
        return Operator(problems.from_desc(inner, clip))

    def compile_operator(self, operator: Operator, flags: DML_EXECUTION_FLAGS = DML_EXECUTION_FLAGS.NONE,
                         options: Options = Options()) -> CompiledOperator:
        """Plan an operator for this device (IDMLDevice::CompileOperator).

        flags: hints that change nothing here: sums are never in less than float32. options: what to force in the plan. The
        environment variable VKDML_SCHEDULE forces a schedule where the options do not.

        Raises InvalidArgumentError for what the device cannot hold and for options that it cannot have, before anything is
        allocated; DriverError for float64 where the driver's arithmetic is not accurate enough; VerificationError where the
        driver is not a known one, or VKDML_SELFTEST is "on", and its kernels for such an operator compute wrongly.
        """
        check_type("compile_operator", "operator", operator, Operator)
        check_type("compile_operator", "options", options, Options)
        if not isinstance(flags, int) or flags & ~sum(DML_EXECUTION_FLAGS):
            raise InvalidArgumentError("compile_operator", "flags", shown(flags), "DML_EXECUTION_FLAGS")
        if options.schedule is None:
            options = replace(options, schedule=_schedule_of_environment())
        if operator.problem.element.pairs:
            check_float64(self._gpu)
        compiled = CompiledOperator(self._gpu, operator.problem, options, bool(self.verify))
        check_driver(self._gpu, operator.problem)  # after what the device cannot have is refused
        return compiled

    def create_operator_initializer(self, compiled: CompiledOperator) -> OperatorInitializer:
        """An initializer of one operator (IDMLDevice::CreateOperatorInitializer)."""
        return OperatorInitializer(compiled)

    def create_binding_table(self, dispatchable: Dispatchable) -> BindingTable:
        """A table with nothing bound, for a compiled operator or an initializer (IDMLDevice::CreateBindingTable)."""
        return BindingTable(dispatchable)

    def create_command_recorder(self) -> CommandRecorder:
        """A recorder with nothing recorded (IDMLDevice::CreateCommandRecorder)."""
        return CommandRecorder(self._gpu, self.share)

    def create_buffer(self, size_in_bytes: int) -> Buffer:
        """Device memory of a multiple of 4 bytes, at most info.max_storage_buffer_range.

        The host's copy starts as zeros; what the device has is undefined until it is uploaded or written there.

        Raises InvalidArgumentError for another size, or above memory_limit; DriverError when the driver fails.
        """
        limit = self.info.max_storage_buffer_range
        if not isinstance(size_in_bytes, int | np.integer) or not 0 < size_in_bytes <= limit or size_in_bytes % 4:
            raise InvalidArgumentError("create_buffer", "size_in_bytes", shown(size_in_bytes),
                                       f"a multiple of 4, from 4 to {limit}")
        self._gpu.memory.make_room("create_buffer", {"size_in_bytes": self._gpu.bytes_of(int(size_in_bytes), True)})
        return Buffer(self._gpu, int(size_in_bytes))

    def upload(self, array: np.ndarray) -> Buffer:
        """A new buffer with an array's elements, in C order, of any dtype of numbers. Its size is rounded up to 4 bytes.

        Raises what create_buffer raises.
        """
        check_type("upload", "array", array, np.ndarray)
        buffer = self.create_buffer(-(-array.nbytes // 4) * 4)
        buffer.upload(array)
        return buffer
