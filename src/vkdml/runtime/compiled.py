"""Operators checked, planned for a device, and recorded there: DirectML's operator, compiled operator and initializer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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
from .commands import Commands
from .device import Buffer, Gpu, Kernel
from .fallback import Fallback
from .packed import PackedWeights
from .store import Lease


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
    """An operator planned for a device, and its packed weights (IDMLCompiledOperator).

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
        packed = {name for dispatch in self.plan.initialize for name in dispatch.writes}
        self.packed_sizes = {name: self.plan.internal[name] for name in packed}
        self.scratch_sizes = {name: size for name, size in self.plan.internal.items() if name not in packed}
        self.packed = PackedWeights(gpu, self.packed_sizes)
        self._scratch: dict[str, Buffer] | None = None

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The operator's inputs in binding order."""
        return self.problem.inputs

    @property
    def output_fields(self) -> tuple[str, ...]:
        """The operator's outputs in binding order."""
        return self.problem.outputs

    @property
    def weight_fields(self) -> list[str]:
        """The inputs that are packed."""
        return [field for field in self.problem.weights if self.problem.has(field)]

    def record(self, commands: Commands, bound: Mapping[str, Buffer]) -> None:
        """An execution. bound: a buffer for each tensor but weights that were packed by the initializer, by field."""
        if self.weight_fields and not self.problem.initialized:
            sources = [bound[field] for field in self.weight_fields]
            commands.pack(self.packed, sources, lambda inner: self.record_packing(inner, bound, self.packed.buffers))
        if self._scratch is None:
            self._scratch = {name: Buffer(self.gpu, size, name == self.flagged) for name, size in self.scratch_sizes.items()}
        self.record_loop(commands, {**bound, **self._scratch, **self.packed.buffers})

    @property
    def flagged(self) -> str | None:
        """The scratch buffer with the word in which the plan says that it gave up."""
        return self.plan.gave_up[0] if self.plan.gave_up else None

    @property
    def packing_key(self) -> Hashable:
        """Operators with the same one pack weights alike."""
        return tuple((dispatch.kernel, tuple(dispatch.constants.items()), tuple(dispatch.push.items()))
                     for dispatch in self.plan.initialize)

    def record_packing(self, commands: Commands, weights: Mapping[str, Buffer], packed: Mapping[str, Buffer],
                       lease: Lease | None = None) -> None:
        """weights: by field. packed: where they go, by the plan's names. lease: of whoever keeps the commands."""
        self._record(commands, self.plan.initialize, {**weights, **packed}, lease)

    def record_loop(self, commands: Commands, buffers: Mapping[str, Buffer], lease: Lease | None = None) -> None:
        """An execution whose weights are packed. buffers: of the tensors, by field, and of the plan, by name."""
        if self.plan.gave_up is None:
            self._record(commands, self.plan.execute, buffers, lease)
            return
        name, word = self.plan.gave_up
        commands.call(Fallback(
            self.gpu, lambda commands: self._record(commands, self.plan.execute, buffers, lease), (buffers[name], word),
            lambda commands: self._record(commands, self.plan.fallback, buffers, lease)).execute)

    def _record(self, commands: Commands, dispatches: Sequence[Dispatch], buffers: Mapping[str, Buffer],
                lease: Lease | None) -> None:
        made: dict[Hashable, Kernel] = {}  # one for all dispatches that differ in push constants only
        for dispatch in dispatches:
            key = (dispatch.kernel, dispatch.groups, id(dispatch.constants), *dispatch.buffers.items())
            if key not in made:
                made[key] = self.gpu.create_kernel(dispatch, buffers, lease=lease)
            commands.dispatch(made[key], dispatch.push, dispatch.starts_submission)


class OperatorInitializer:
    """Packs the weights of one compiled operator that were described as OWNED_BY_DML, and else does nothing
    (IDMLOperatorInitializer). Made by Device.create_operator_initializer.
    """

    def __init__(self, compiled: CompiledOperator) -> None:
        check_type("create_operator_initializer", "compiled", compiled, CompiledOperator)
        self.compiled = compiled


Dispatchable = CompiledOperator | OperatorInitializer
