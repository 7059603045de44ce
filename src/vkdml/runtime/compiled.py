"""Operators checked, planned for a device, and recorded there: DirectML's operator, compiled operator and initializer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..planning.device_info import DeviceInfo
from ..planning.dispatches import Dispatch
from ..planning.elementwise import plan as plan_elementwise
from ..planning.options import Options
from ..planning.plan import Plan
from ..planning.plan import plan as plan_recurrent
from ..spec.elementwise import ElementwiseProblem
from ..spec.problem import Problem
from . import kernels
from .device import Buffer, Commands, Gpu, Kernel
from .fallback import Fallback
from .recent import Recent
from .shared import PackedWeights, Pool

_KERNELS_KEPT = 16  # bound pipelines that a compiled operator keeps for its most recent sets of buffers


def check_type(call: str, argument: str, value: object, allowed: Any) -> None:
    """Refuse a value of another class. allowed: a class, or a tuple of some."""
    if not isinstance(value, allowed):
        names = [cls.__name__ for cls in (allowed if isinstance(allowed, tuple) else (allowed,))]
        raise InvalidArgumentError(call, argument, type(value).__name__, " or ".join(names))


def _check_storage_buffers(info: DeviceInfo, operator: str, plan: Plan) -> None:
    """Refuse kernels with more bindings than the device has. A tensor that is left out takes one too."""
    for name in {dispatch.kernel for dispatch in plan.initialize + plan.execute + plan.fallback}:
        count = len(kernels.load(name).interface.bindings)
        if count > info.max_storage_buffers:
            raise InvalidArgumentError(operator, name, f"{count} storage buffers",
                                       f"at most {info.max_storage_buffers} on {info.name}")


class Operator:
    """A checked operator descriptor (IDMLOperator). Made by Device.create_operator.

    problem: the checked descriptor.
    """

    def __init__(self, problem: Problem | ElementwiseProblem) -> None:
        self.problem = problem


class CompiledOperator:
    """An operator planned for a device, and its packed weights once initialized (IDMLCompiledOperator).

    Made by Device.compile_operator.
    """

    def __init__(self, gpu: Gpu, problem: Problem | ElementwiseProblem, options: Options) -> None:
        self.problem = problem
        if isinstance(problem, ElementwiseProblem):
            self.plan = plan_elementwise(problem, gpu.info)
        else:
            self.plan = plan_recurrent(problem, gpu.info, options)
        _check_storage_buffers(gpu.info, problem.operator, self.plan)
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
        """The operator's outputs in binding order."""
        return self.problem.outputs

    def share(self, packed: PackedWeights, pool: Pool) -> None:
        """Use the packed weights of another operator, whose plan packs them alike, and the pool of several operators.

        To be called before anything is recorded.
        """
        self.packed = packed
        self._pool = pool
        self._kernels = pool.kernels

    def record_initialization(self, commands: Commands, bound: dict[str, Buffer]) -> None:
        """bound: the weights' buffers, by field."""
        self._record(commands, self.plan.initialize, bound)

    def record_execution(self, commands: Commands, bound: dict[str, Buffer]) -> None:
        """bound: the buffers of all other tensors, by field."""
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
        """Made once for all dispatches that differ in push constants only, as the chunks of a time loop do."""
        # A kernel holds its buffers, so no other buffer can get one's id as long as the kernel is kept
        bound = [(block, id(buffers[name])) for block, name in dispatch.buffers.items()]
        key = (dispatch.kernel, dispatch.groups, *sorted(dispatch.constants.items()), *sorted(bound))
        return self._kernels.get(key, lambda: self.gpu.create_kernel(dispatch, buffers))


class OperatorInitializer:
    """Packs the weights of one compiled operator (IDMLOperatorInitializer). Made by Device.create_operator_initializer."""

    def __init__(self, compiled: CompiledOperator) -> None:
        check_type("create_operator_initializer", "compiled", compiled, CompiledOperator)
        self.compiled = compiled


Dispatchable = CompiledOperator | OperatorInitializer
