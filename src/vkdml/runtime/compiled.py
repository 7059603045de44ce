"""Operators checked, planned for a device, and recorded there: DirectML's operator, compiled operator and initializer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ..errors import InvalidArgumentError
from ..planning.device_info import DeviceInfo
from ..planning.elementwise import plan as plan_elementwise
from ..planning.options import Options
from ..planning.plan import Plan
from ..planning.plan import plan as plan_recurrent
from ..planning.profiles import profile
from ..spec.elementwise import ElementwiseProblem
from ..spec.problem import Problem
from . import tuner
from .commands import Commands
from .device import Buffer, Gpu
from .fallback import Attempts
from .packed import PackedWeights
from .recording import record_dispatches, record_execution, storage_buffers
from .store import Lease


def check_type(call: str, argument: str, value: object, allowed: Any) -> None:
    """Refuse a value of another class. allowed: a class, or a tuple of some."""
    if not isinstance(value, allowed):
        names = [cls.__name__ for cls in (allowed if isinstance(allowed, tuple) else (allowed,))]
        raise InvalidArgumentError(call, argument, type(value).__name__, " or ".join(names))


def _check_storage_buffers(info: DeviceInfo, operator: str, plan: Plan) -> None:
    """Refuse kernels with more bindings than the device has."""
    for name, count in storage_buffers(plan).items():
        if count > info.max_storage_buffers:
            raise InvalidArgumentError(operator, name, f"{count} storage buffers",
                                       f"at most {info.max_storage_buffers} on {info.name}")


class Operator:
    """A checked operator descriptor (IDMLOperator). Made by Device.create_operator.

    problem: the checked descriptor.
    """

    def __init__(self, problem: Problem | ElementwiseProblem) -> None:
        self.problem = problem


class _Chosen:
    """A plan, and the buffers that it needs beside the tensors."""

    def __init__(self, gpu: Gpu, plan: Plan, attempts: Attempts) -> None:
        self.plan, self.attempts = plan, attempts
        packed = {name for dispatch in plan.initialize for name in dispatch.writes}
        self.packed = PackedWeights(gpu, {name: plan.internal[name] for name in packed})
        self.scratch_sizes = {name: size for name, size in plan.internal.items() if name not in packed}


class CompiledOperator:
    """An operator planned for a device, and its packed weights (IDMLCompiledOperator).

    Made by Device.compile_operator. Where the device's profile says that it is tuned, the plan is chosen when it is needed.
    """

    def __init__(self, gpu: Gpu, problem: Problem | ElementwiseProblem, options: Options) -> None:
        self.problem, self.gpu, self._options = problem, gpu, options
        self._tuning = tuner.mode_of_environment()
        self._is_tuned = isinstance(problem, Problem) and profile(gpu.info).tuned
        self._chosen: _Chosen | None = None
        self._scratch: dict[str, Buffer] | None = None
        _check_storage_buffers(gpu.info, problem.operator, self.plan if self._is_chosen_at_once else self._by_model)

    def choose(self) -> _Chosen:
        """Decide on the plan, unless that is done."""
        with self.gpu.lock:
            if self._chosen is None:
                if self._is_tuned and isinstance(self.problem, Problem):
                    of_device = tuner.tuner(self.gpu)
                    self._chosen = _Chosen(self.gpu, of_device.plan(self.problem, self._options, self._tuning),
                                           of_device.attempts(self.problem, self._options))
                else:
                    self._chosen = _Chosen(self.gpu, self._by_model, Attempts())
            return self._chosen

    @property
    def _by_model(self) -> Plan:
        if isinstance(self.problem, ElementwiseProblem):
            return plan_elementwise(self.problem, self.gpu.info)
        return plan_recurrent(self.problem, self.gpu.info, self._options)

    @property
    def _is_chosen_at_once(self) -> bool:
        """Whether nothing need be measured for it."""
        if not self._is_tuned or isinstance(self.problem, ElementwiseProblem):
            return True
        return tuner.tuner(self.gpu).knows(self.problem, self._options, self._tuning)

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self.choose().plan

    @property
    def packed(self) -> PackedWeights:
        """The weights that an initializer or an execution of this operator packs."""
        return self.choose().packed

    @property
    def packed_sizes(self) -> Mapping[str, int]:
        """Bytes of the packed weights, by the plan's names."""
        return self.packed.sizes

    @property
    def scratch_sizes(self) -> Mapping[str, int]:
        """Bytes of what an execution needs beside them, by the plan's names."""
        return self.choose().scratch_sizes

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
        record_dispatches(self.gpu, commands, self.plan.initialize, {**weights, **packed}, lease)

    def record_loop(self, commands: Commands, buffers: Mapping[str, Buffer], lease: Lease | None = None) -> None:
        """An execution whose weights are packed. buffers: of the tensors, by field, and of the plan, by name."""
        record_execution(self.gpu, commands, self.plan, buffers, self.choose().attempts, lease)


class OperatorInitializer:
    """Packs the weights of one compiled operator that were described as OWNED_BY_DML, and else does nothing
    (IDMLOperatorInitializer). Made by Device.create_operator_initializer.
    """

    def __init__(self, compiled: CompiledOperator) -> None:
        check_type("create_operator_initializer", "compiled", compiled, CompiledOperator)
        self.compiled = compiled


Dispatchable = CompiledOperator | OperatorInitializer
