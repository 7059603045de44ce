"""Operators checked, planned for a device, and recorded there: DirectML's operator and compiled operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import InvalidArgumentError
from ..planning import needs, words
from ..planning.device_info import DeviceInfo
from ..planning.needs import OperatorMemory
from ..planning.options import WORKSPACES, Options
from ..planning.plain import plan as plan_plain
from ..planning.plan import Plan
from ..planning.plan import plan as plan_recurrent
from ..planning.profiles import profile
from ..spec.descs import DML_BINDING_PROPERTIES
from ..spec.plain import PlainProblem
from ..spec.problem import Problem
from ..spec.verification import with_sequence
from . import tuner
from .buffers import Bound, Buffer, parts
from .commands import Commands
from .device import Gpu
from .fallback import Attempts
from .fork import OfOneProcess
from .naming import NamedOperator
from .packed import Known, PackedWeights
from .recording import record_dispatches, record_execution, storage_buffers
from .store import Lease
from .values import check_values_before

_log = logging.getLogger(__name__)


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


class Operator(NamedOperator):
    """A checked operator descriptor (IDMLOperator). Made by Device.create_operator.

    problem: the checked descriptor.
    """

    problem: Problem | PlainProblem

    def __init__(self, problem: Problem | PlainProblem) -> None:
        self.problem = problem


@dataclass(frozen=True)
class _Chosen:
    """A plan, and what is the same with smaller chunks. workspace_bytes: the bound on them."""

    plan: Plan
    attempts: Attempts
    packed: PackedWeights
    workspace_bytes: int | None


@dataclass(frozen=True)
class Recordable:
    """An operator with all that it is recorded with. bound: memory of its tensors, by field. temporary, persistent: resources
    of a caller's, instead of the package's own.
    """

    compiled: CompiledOperator
    bound: Mapping[str, Bound]
    temporary: Bound | None
    persistent: Bound | None


class Bindable(NamedOperator, OfOneProcess):
    """What a binding table binds for an execution: a CompiledOperator or a CompiledGraph."""

    @property
    def input_fields(self) -> tuple[str, ...]:
        """Its inputs in binding order."""
        return self.problem.inputs

    @property
    def output_fields(self) -> tuple[str, ...]:
        """Its outputs in binding order."""
        return self.problem.outputs


class CompiledOperator(Bindable):
    """An operator planned for a device, and its packed weights (IDMLCompiledOperator).

    Made by Device.compile_operator. Where the device's profile says that it is tuned, the plan is chosen when it is needed.

    is_verified: whether executions may be checked. computed: the problem, then with all outputs that a check needs.
    """

    problem: Problem | PlainProblem

    def __init__(self, gpu: Gpu, problem: Problem | PlainProblem, options: Options, is_verified: bool = False) -> None:
        self.problem, self.gpu, self._options = problem, gpu, options
        self.is_verified = is_verified
        self.computed = with_sequence(problem) if is_verified and isinstance(problem, Problem) else problem
        self._tuning = tuner.mode_of_environment()
        self._is_tuned = isinstance(problem, Problem) and profile(gpu.info).tuned
        self._chosen: _Chosen | None = None
        self._scratch: dict[str, Buffer] | None = None
        self._known: WeakKeyDictionary[Buffer, dict[tuple[int, int], Known]] = WeakKeyDictionary()  # by callers' resources
        _check_storage_buffers(gpu.info, problem.operator, self.plan if self._is_chosen_at_once else self._by_model())

    def choose(self, workspace_bytes: int | None = None) -> _Chosen:
        """Decide on the plan, unless that is done. workspace_bytes: of its chunks, where memory is short."""
        with self.gpu.lock:
            chosen = self._chosen
            if chosen is None:
                plan, attempts = self._planned(workspace_bytes), self._attempts()
                packed = PackedWeights(self.gpu, self.problem.operator, plan.packed)
                chosen = _Chosen(plan, attempts, packed, workspace_bytes)
            elif chosen.workspace_bytes != workspace_bytes:
                chosen = replace(chosen, plan=self._planned(workspace_bytes), workspace_bytes=workspace_bytes)
            if chosen is not self._chosen:
                self._log_choice(chosen.plan)
            self._chosen = chosen
            return chosen

    def _log_choice(self, plan: Plan) -> None:
        if _log.isEnabledFor(logging.DEBUG) and isinstance(self.problem, Problem):
            _log.debug("%s: %s", words.of_problem(self.problem), words.of_plan(plan))

    def _planned(self, workspace_bytes: int | None) -> Plan:
        if self._is_tuned and isinstance(self.computed, Problem):
            plan = tuner.tuner(self.gpu).plan(self.computed, self._options, self._tuning, workspace_bytes)
            return self._with_computed(plan)
        return self._by_model(workspace_bytes)

    def _attempts(self) -> Attempts:
        if self._is_tuned and isinstance(self.computed, Problem):
            return tuner.tuner(self.gpu).attempts(self.computed, self._options)
        return Attempts()

    def _by_model(self, workspace_bytes: int | None = None) -> Plan:
        if isinstance(self.problem, PlainProblem):
            return plan_plain(self.problem, self.gpu.info)
        assert isinstance(self.computed, Problem)
        return self._with_computed(plan_recurrent(self.computed, self.gpu.info, self._options, workspace_bytes))

    def _with_computed(self, plan: Plan) -> Plan:
        """With buffers for outputs that nobody binds."""
        fields = [field for field in self.computed.outputs if self.computed.has(field) and not self.problem.has(field)]
        return replace(plan, internal=plan.internal | {field: self.computed.tensor(field).size_in_bytes for field in fields})

    def fit(self) -> None:
        """Decide on the plan of which the device has room for all buffers beside the tensors. Once they are made, it stays."""
        with self.gpu.lock:
            if self._scratch is None:
                choose_within(self.gpu, [self], lambda: self.missing)

    @property
    def missing(self) -> dict[str, int]:
        """Bytes of the buffers that are not made yet, by the plan's names."""
        return {**self.packed.missing, **(self._scratch_bytes if self._scratch is None else {})}

    @property
    def _scratch_bytes(self) -> dict[str, int]:
        return {name: self.gpu.bytes_of(size, self._is_read(name)) for name, size in self.plan.scratch.items()}

    def _is_read(self, name: str) -> bool:
        """Whether the host reads a scratch buffer."""
        return name == self.flagged or name in self.computed.outputs

    @property
    def _decided(self) -> _Chosen:
        return self._chosen or self.choose()

    @property
    def _is_chosen_at_once(self) -> bool:
        """Whether nothing need be measured for it."""
        if not self._is_tuned or not isinstance(self.computed, Problem):
            return True
        return tuner.tuner(self.gpu).knows(self.computed, self._options, self._tuning)

    @property
    def _facts(self) -> str:
        return f"{super()._facts} on {self.gpu.info.name}"

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self._decided.plan

    @property
    def packed(self) -> PackedWeights:
        """The weights that an initializer or an execution of this operator packs."""
        return self._decided.packed

    def get_binding_properties(self) -> DML_BINDING_PROPERTIES:
        """What executions bind and take (IDMLDispatchable::GetBindingProperties).

        A descriptor for each buffer, the tensors' among them; temporary: scratch memory; persistent: the packed weights. A
        binding table may bind resources of these sizes; where it does not, the package makes them itself. Nothing is allocated
        here, but where a plan is timed first (`VKDML_TUNING`).
        """
        self.fit()
        return needs.of_execution(self.problem, self.plan, self._temporary)

    @property
    def initializer_descriptors(self) -> int:
        """That an initializer of it binds."""
        self.fit()
        return needs.of_initialization(self.problem, self.plan)

    def memory(self) -> OperatorMemory:
        """The bytes of all buffers of an execution, by name: print(compiled.memory()). As get_binding_properties, it allocates
        nothing.
        """
        self.fit()
        return needs.memory(self.problem, self.plan)

    @property
    def weight_fields(self) -> list[str]:
        """The inputs that are packed."""
        return [field for field in self.problem.weights if self.problem.has(field)]

    def nodes(self, bound: Mapping[str, Bound], temporary: Bound | None, persistent: Bound | None) -> list[Recordable]:
        """What is to be recorded: as a graph of itself alone."""
        return [Recordable(self, bound, temporary, persistent)]

    def packed_within(self, persistent: Bound | None) -> PackedWeights:
        """Those in a caller's persistent resource, or the package's own."""
        if persistent is None:
            return self.packed
        with self.gpu.lock:
            place = persistent.offset, persistent.size_in_bytes
            known = self._known.setdefault(persistent.buffer, {}).setdefault(place, Known())
            return PackedWeights(self.gpu, self.problem.operator, self.plan.packed, persistent, known)

    def initialized(self, persistent: Bound | None) -> list[PackedWeights]:
        """What an initializer must have packed before an execution."""
        return [self.packed_within(persistent)] if self.problem.initialized else []

    def record_initialization(self, commands: Commands, bound: Mapping[str, Bound], persistent: Bound | None
                              ) -> list[PackedWeights]:
        """Of what is bound to an initializer, by field. Returns what is packed then."""
        initialized = self.initialized(persistent)
        for packed in initialized:
            self.record_packing(commands, bound, packed.buffers)
        return initialized

    def record(self, commands: Commands, bound: Mapping[str, Bound], temporary: Bound | None = None,
               persistent: Bound | None = None) -> Mapping[str, Bound]:
        """An execution. bound: memory for each tensor but weights that were packed by the initializer, by field. temporary,
        persistent: as of a Recordable. Returns the scratch memory, by the plan's names.

        Raises InvalidArgumentError where the device has no room for its buffers, or the temporary resource not enough.
        """
        scratch = self._made() if temporary is None else self._made_within(temporary)
        packed = self.packed_within(persistent)
        check_values_before(commands, self.problem, bound)
        if self.weight_fields and not self.problem.initialized:
            sources = [bound[field] for field in self.weight_fields]
            commands.pack(packed, sources, lambda inner: self.record_packing(inner, bound, packed.buffers))
        self.record_loop(commands, {**bound, **scratch, **packed.buffers})
        return scratch

    @property
    def _temporary(self) -> dict[str, int]:
        """Bytes of what a temporary resource holds, by name: all but what the host reads."""
        return {name: size for name, size in self.plan.scratch.items() if not self._is_read(name)}

    def _made_within(self, temporary: Bound) -> Mapping[str, Bound]:
        """The scratch memory within a caller's, and buffers of the package's beside it."""
        within = parts(self.problem.operator, temporary, self._temporary)
        read = {name: size for name, size in self._scratch_bytes.items() if self._is_read(name)}
        self.gpu.memory.make_room(self.problem.operator, read)
        return {**within, **{name: Buffer(self.gpu, self.plan.scratch[name]) for name in read}}

    def _made(self) -> dict[str, Buffer]:
        """The scratch memory of the package's own."""
        with self.gpu.lock:
            if self._scratch is None:
                self.fit()
                self.gpu.memory.make_room(self.problem.operator, self.missing)
                self._scratch = {name: Buffer(self.gpu, size, self._is_read(name)) for name, size in self.plan.scratch.items()}
            return self._scratch

    @property
    def flagged(self) -> str | None:
        """The scratch buffer with the word in which the plan says that it gave up."""
        return self.plan.gave_up[0] if self.plan.gave_up else None

    @property
    def packing_key(self) -> Hashable:
        """Operators with the same one pack weights alike."""
        return tuple((dispatch.kernel, tuple(dispatch.constants.items()), tuple(dispatch.push.items()))
                     for dispatch in self.plan.initialize)

    def record_packing(self, commands: Commands, weights: Mapping[str, Bound], packed: Mapping[str, Bound],
                       lease: Lease | None = None) -> None:
        """weights: by field. packed: where they go, by the plan's names. lease: of whoever keeps the commands."""
        record_dispatches(self.gpu, commands, self.plan.initialize, {**weights, **packed}, lease)

    def record_loop(self, commands: Commands, buffers: Mapping[str, Bound], lease: Lease | None = None) -> None:
        """An execution whose weights are packed. buffers: of the tensors, by field, and of the plan, by name."""
        record_execution(self.gpu, commands, self.plan, buffers, self._decided.attempts, lease)


def choose_within(gpu: Gpu, operators: Iterable[CompiledOperator], sizes: Callable[[], Mapping[str, int]]) -> None:
    """Decide on the plans of operators that run together: with the largest chunks of which the device has room for all that is
    needed then, or else with the smallest. No result depends on them. sizes: its bytes, by name.
    """
    for workspace_bytes in (None, *WORKSPACES):
        for operator in operators:
            operator.choose(workspace_bytes)
        if gpu.memory.has_room(sizes()):
            return
