"""DirectML's objects in Python's names: device, operator, compiled operator, initializer, binding table, recorder.

The life cycle is DirectML's: create, compile, initialize, bind, record, execute. One thing is ours: the weights and
biases are bound when the operator is initialized, and packed there once. DirectML would do so for OWNED_BY_DML tensors,
which it does not support for recurrent operators.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from ..planning.device_info import DeviceInfo
from ..planning.dispatches import Dispatch
from ..planning.elementwise import plan as plan_elementwise
from ..planning.options import SCHEDULES, Options
from ..planning.plan import plan as plan_recurrent
from ..spec import activations, elementwise
from ..spec import problem as problems
from ..spec.checks import CheckedOperator, unwrap_operator
from ..spec.descs import DML_EXECUTION_FLAGS
from ..spec.elementwise import ElementwiseProblem
from ..spec.problem import Problem
from . import vulkan
from .device import Buffer, Commands, Gpu, Kernel, open_device, select_device
from .fallback import Fallback
from .float64 import check_float64
from .fork import Lock
from .recent import Recent
from .shared import PackedWeights, Pool

_KERNELS_KEPT = 16  # bound pipelines that a compiled operator keeps for its most recent sets of buffers


def _schedule_of_environment() -> str | None:
    name = os.environ.get("VKDML_SCHEDULE") or None
    if name not in (None, *SCHEDULES):
        raise InvalidArgumentError("compile_operator", "VKDML_SCHEDULE", repr(name), "one of " + ", ".join(SCHEDULES))
    return name


def _check_type(call: str, argument: str, value: object, allowed: Any) -> None:
    if not isinstance(value, allowed):
        names = [cls.__name__ for cls in (allowed if isinstance(allowed, tuple) else (allowed,))]
        raise InvalidArgumentError(call, argument, type(value).__name__, " or ".join(names))


class Operator:
    """A checked operator descriptor (IDMLOperator). Made by Device.create_operator."""

    def __init__(self, problem: Problem | ElementwiseProblem) -> None:
        self.problem = problem


class CompiledOperator:
    """An operator planned for a device, and its packed weights once initialized (IDMLCompiledOperator)."""

    def __init__(self, gpu: Gpu, problem: Problem | ElementwiseProblem, options: Options) -> None:
        self.problem = problem
        if isinstance(problem, ElementwiseProblem):
            self.plan = plan_elementwise(problem, gpu.info)
        else:
            self.plan = plan_recurrent(problem, gpu.info, options)
        self.gpu = gpu
        self._packed_names = {name for dispatch in self.plan.initialize for name in dispatch.writes}
        self.packed = PackedWeights(gpu, {name: self.plan.internal[name] for name in self._packed_names})
        self._workspace_bytes = options.workspace_bytes
        self._pool: Pool | None = None
        self._internal: dict[str, Buffer] | None = None
        self._kernels: Recent[Kernel] = Recent(_KERNELS_KEPT)

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The operator's inputs in binding order."""
        return self.problem.inputs

    @property
    def output_fields(self) -> tuple[str, ...]:
        return self.problem.outputs

    def share(self, packed: PackedWeights, pool: Pool) -> None:
        """Use another operator's packed weights, which this one's plan would pack alike, and buffers and kernels of several."""
        self.packed = packed
        self._pool = pool
        self._kernels = pool.kernels

    def record_initialization(self, commands: Commands, bound: dict[str, Buffer]) -> None:
        self._record(commands, self.plan.initialize, bound)

    def record_execution(self, commands: Commands, bound: dict[str, Buffer]) -> None:
        internal = self._internal_buffers()
        bound = bound | internal
        if self.plan.gave_up is None:
            self._record(commands, self.plan.execute, bound)
            return
        name, word = self.plan.gave_up
        commands.call(Fallback(
            self.gpu, lambda commands: self._record(commands, self.plan.execute, bound), (internal[name], word),
            lambda commands: self._record(commands, self.plan.fallback, bound)).execute)

    def _internal_buffers(self) -> dict[str, Buffer]:
        """State and workspace, made at the first recording, by name."""
        if self._internal is None:
            self._internal = {name: self._internal_buffer(name, size) for name, size in self.plan.internal.items()
                              if name not in self._packed_names}
        return self._internal

    def _internal_buffer(self, name: str, size: int) -> Buffer:
        if self._pool is None:
            return Buffer(self.gpu, size)
        if self.plan.gave_up is not None and name == self.plan.gave_up[0]:  # its end is where workgroups meet
            return self._pool.buffer(name, size, size, self.plan.gave_up)
        return self._pool.buffer(name, size, self._workspace_bytes)

    def _record(self, commands: Commands, dispatches: Sequence[Dispatch], bound: dict[str, Buffer]) -> None:
        buffers = bound | self.packed.buffers
        for dispatch in dispatches:
            commands.dispatch(self._kernel(dispatch, buffers), dispatch.push)

    def _kernel(self, dispatch: Dispatch, buffers: dict[str, Buffer]) -> Kernel:
        """The chunks of a time loop differ in push constants only and share a pipeline."""
        bound = [(block, id(buffers[name])) for block, name in dispatch.buffers.items()]
        key = (dispatch.kernel, dispatch.groups, *sorted(dispatch.constants.items()), *sorted(bound))
        return self._kernels.get(key, lambda: self.gpu.create_kernel(dispatch, buffers))


class OperatorInitializer:
    """Packs the weights of one compiled operator (IDMLOperatorInitializer)."""

    def __init__(self, compiled: CompiledOperator) -> None:
        _check_type("create_operator_initializer", "compiled", compiled, CompiledOperator)
        self.compiled = compiled


Dispatchable = CompiledOperator | OperatorInitializer


class BindingTable:
    """Buffers bound to the tensors of a compiled operator or of its initializer (IDMLBindingTable).

    For an initializer, the weights and the bias are bound; for execution, everything else.
    """

    def __init__(self, dispatchable: Dispatchable) -> None:
        self.reset(dispatchable)

    def reset(self, dispatchable: Dispatchable) -> None:
        """Start anew, for another dispatchable or the same, with nothing bound."""
        _check_type("create_binding_table", "dispatchable", dispatchable, (CompiledOperator, OperatorInitializer))
        self.dispatchable = dispatchable
        self.initializing = isinstance(dispatchable, OperatorInitializer)
        self.compiled = dispatchable.compiled if isinstance(dispatchable, OperatorInitializer) else dispatchable
        self.bound: dict[str, Buffer] = {}

    def bind_inputs(self, bindings: Sequence[Buffer | None]) -> None:
        """Bind the inputs, in DirectML's order. Where the descriptor has no tensor, and where this dispatch takes none
        (weights and bias in an execution, all else in an initialization), the binding is None.
        """
        self._bind("bind_inputs", self.compiled.input_fields, bindings)

    def bind_outputs(self, bindings: Sequence[Buffer | None]) -> None:
        """Bind the outputs, in DirectML's order; None where the descriptor has no tensor."""
        self._bind("bind_outputs", self.compiled.output_fields, bindings)

    def missing(self) -> list[str]:
        """Fields still to be bound before this can be recorded."""
        fields = (*self.compiled.input_fields, *self.compiled.output_fields)
        return [field for field in fields if self._takes(field) and field not in self.bound]

    def _takes(self, field: str) -> bool:
        problem = self.compiled.problem
        return problem.has(field) and (field in problem.initialized) == self.initializing

    def _bind(self, call: str, fields: Sequence[str], bindings: Sequence[Buffer | None]) -> None:
        operator = self.compiled.problem.operator
        if len(bindings) != len(fields):
            raise InvalidArgumentError(operator, call, f"{len(bindings)} bindings", f"{len(fields)}: {', '.join(fields)}")
        bound = {}
        for field, buffer in zip(fields, bindings):
            if buffer is None and not self._takes(field):
                continue
            bound[field] = self._check(operator, f"{call}: {field}", field, buffer)
        self.bound.update(bound)

    def _check(self, operator: str, what: str, field: str, buffer: Buffer | None) -> Buffer:
        if not self._takes(field):
            when = "has no tensor here" if not self.compiled.problem.has(field) else (
                "is bound to the operator: reset the table" if self.initializing else "is bound to the initializer")
            raise InvalidArgumentError(operator, what, "a buffer", f"None: it {when}")
        tensor = self.compiled.problem.tensor(field)
        if not isinstance(buffer, Buffer):
            raise InvalidArgumentError(operator, what, type(buffer).__name__,
                                       f"a Buffer of {tensor.size_in_bytes} bytes or more")
        if buffer.gpu is not self.compiled.gpu:
            raise InvalidArgumentError(operator, what, f"a buffer of {buffer.gpu.info.name}",
                                       "a buffer of the operator's device")
        if buffer.size_in_bytes < tensor.size_in_bytes:
            raise InvalidArgumentError(operator, what, f"{buffer.size_in_bytes} bytes", f"{tensor.size_in_bytes} bytes or more")
        return buffer


class CommandRecorder:
    """Records dispatches and copies once, executes them any number of times (IDMLCommandRecorder and a command list)."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._commands = gpu.create_commands()
        self._initialized: list[PackedWeights] = []

    def record_upload(self, buffer: Buffer) -> None:
        """Bring the host's copy of a buffer to the device."""
        self._check_device("record_upload", buffer)
        self._commands.upload(buffer)

    def record_readback(self, buffer: Buffer) -> None:
        """Bring a buffer to the host's copy of it."""
        self._check_device("record_readback", buffer)
        self._commands.readback(buffer)

    def record_dispatch(self, dispatchable: Dispatchable, table: BindingTable) -> None:
        """Record an initialization or an execution with what the table binds now."""
        _check_type("record_dispatch", "table", table, BindingTable)
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
            dispatchable.compiled.record_initialization(self._commands, table.bound)
            self._initialized.append(dispatchable.compiled.packed)
            return
        if not dispatchable.packed.is_initialized and dispatchable.packed not in self._initialized:
            raise InvalidArgumentError(problem.operator, "record_dispatch", "an operator that is not initialized",
                                       "its initializer recorded first")
        if isinstance(problem, Problem) and problem.has("SequenceLengthsTensor"):
            self._check_lengths(problem, table.bound["SequenceLengthsTensor"])
        dispatchable.record_execution(self._commands, table.bound)

    def execute(self) -> None:
        """Run everything recorded, in order, and wait for it. May be called again with new contents in the buffers."""
        for packed in self._initialized:
            packed.is_initialized = False  # stays so if the driver fails
        self._commands.execute()
        for packed in self._initialized:
            packed.is_initialized = True

    def _check_device(self, call: str, buffer: Buffer) -> None:
        if not isinstance(buffer, Buffer):
            raise InvalidArgumentError(call, "buffer", type(buffer).__name__, "a Buffer")
        if buffer.gpu is not self._gpu:
            raise InvalidArgumentError(call, "buffer", f"a buffer of {buffer.gpu.info.name}",
                                       f"one of the recorder's device, {self._gpu.info.name}")

    def _check_lengths(self, problem: Problem, buffer: Buffer) -> None:
        """Lengths that the host wrote are checked at each execution; the kernels bound what a device wrote."""
        tensor = problem.tensor("SequenceLengthsTensor")

        def check() -> None:
            lengths = tensor.view(buffer.host(np.uint32)).reshape(-1)
            check_lengths(problem.operator, lengths, problem.steps)

        self._commands.before_execute(check)


def check_lengths(operator: str, lengths: np.ndarray, steps: int) -> None:
    """Refuse a sequence length below 0 or above T, naming the row."""
    wrong = np.flatnonzero((lengths < 0) | (lengths > steps))
    if wrong.size:
        raise InvalidArgumentError(operator, f"sequence length of row {wrong[0]}", int(lengths[wrong[0]]),
                                   f"0 to T = {steps}")


def _check_aliases(problem: CheckedOperator, bound: dict[str, Buffer]) -> None:
    """An output has a buffer of its own, but for an elementwise operator in place: each element on itself."""
    for output in problem.outputs:
        others = [field for field, buffer in bound.items() if field != output and buffer is bound.get(output)]
        in_place = isinstance(problem, ElementwiseProblem) and problem.tensor(output) == problem.tensor(problem.inputs[0])
        if others and not in_place:
            raise InvalidArgumentError(problem.operator, output, f"the buffer of {others[0]} too", "a buffer of its own")


class Device:
    """A Vulkan device that runs DirectML's recurrent operators (IDMLDevice).

    device: an index or a part of a name from Device.enumerate(); by default the environment variable VKDML_DEVICE
    (either), or else a real GPU before a CPU driver. Raises DriverError when there is none.
    """

    def __init__(self, device: int | str | None = None) -> None:
        self._gpu = open_device(select_device(device))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self._gpu is other._gpu

    def __hash__(self) -> int:
        return hash(self._gpu)

    @staticmethod
    def enumerate() -> list[DeviceInfo]:
        """All Vulkan devices, in the order of their indices."""
        return vulkan.enumerate_devices()

    @property
    def info(self) -> DeviceInfo:
        return self._gpu.info

    @property
    def lock(self) -> Lock:
        """A reentrant context manager, held during every execution.

        Hold it around writes, an execution and reads that belong together.
        """
        return self._gpu.lock

    def create_operator(self, desc: Any, *, clip: float | None = None) -> Operator:
        """Check an operator descriptor: DML_OPERATOR_DESC or the structure alone. clip: ONNX's attribute of that name.

        Raises InvalidArgumentError, before anything is allocated.
        """
        inner = unwrap_operator(desc)
        if type(inner) not in activations.BY_DESC:
            return Operator(problems.from_desc(inner, clip))
        if clip is not None:
            raise InvalidArgumentError(type(inner).__name__, "clip", clip, "None for an activation")
        return Operator(elementwise.from_desc(inner))

    def compile_operator(self, operator: Operator, flags: DML_EXECUTION_FLAGS = DML_EXECUTION_FLAGS.NONE,
                         options: Options = Options()) -> CompiledOperator:
        """Plan an operator for this device. The flags are hints that change nothing here: sums are always float32.

        options: what to force in the plan. A schedule can be forced by the environment variable VKDML_SCHEDULE too.

        Raises InvalidArgumentError for what the device cannot hold, before anything is allocated.
        """
        _check_type("compile_operator", "operator", operator, Operator)
        _check_type("compile_operator", "options", options, Options)
        if not isinstance(flags, int) or flags & ~sum(DML_EXECUTION_FLAGS):
            raise InvalidArgumentError("compile_operator", "flags", repr(flags), "DML_EXECUTION_FLAGS")
        if options.schedule is None:
            options = replace(options, schedule=_schedule_of_environment())
        if operator.problem.element.pairs:
            check_float64(self._gpu)
        return CompiledOperator(self._gpu, operator.problem, options)

    def create_operator_initializer(self, compiled: CompiledOperator) -> OperatorInitializer:
        return OperatorInitializer(compiled)

    def create_binding_table(self, dispatchable: Dispatchable) -> BindingTable:
        return BindingTable(dispatchable)

    def create_command_recorder(self) -> CommandRecorder:
        return CommandRecorder(self._gpu)

    def create_buffer(self, size_in_bytes: int) -> Buffer:
        """Device memory: a multiple of 4 bytes, at most what a storage buffer of the device can hold.

        The host's copy starts as zeros; what the device has is undefined until it is uploaded or written there.
        """
        limit = self.info.max_storage_buffer_range
        if not isinstance(size_in_bytes, int | np.integer) or not 0 < size_in_bytes <= limit or size_in_bytes % 4:
            raise InvalidArgumentError("create_buffer", "size_in_bytes", repr(size_in_bytes),
                                       f"a multiple of 4, from 4 to {limit}")
        return Buffer(self._gpu, int(size_in_bytes))

    def upload(self, array: np.ndarray) -> Buffer:
        """A new buffer with an array's elements, in C order. Its size is rounded up to 4 bytes."""
        _check_type("upload", "array", array, np.ndarray)
        buffer = self.create_buffer(-(-array.nbytes // 4) * 4)
        buffer.upload(array)
        return buffer
