"""DirectML's operators and graphs, checked and compiled for a device. They make the memory that a caller does not bind.

A graph is recorded node by node, like single operators; tensors between its nodes stay on the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakKeyDictionary

from ...engine.commands import Commands
from ...engine.compiled import Compiled, choose_within
from ...engine.vulkan.driver import working
from ...engine.vulkan.gpu import Gpu
from ...engine.vulkan.memory import COPIED, OWN, Bound, DeviceMemory, Kind, Range
from ...engine.vulkan.system import OfOneProcess
from ...engine.weights import PackState, Weights
from ...errors import InvalidArgumentError, check_type
from ...operators.checks import CheckedOperator
from ...operators.graph_checks import Graph
from ...operators.header.descs import DML_BINDING_PROPERTIES
from ...operators.plain_problem import ComputedProblem, MovedProblem, PlainProblem
from ...operators.problem import Problem
from ...planning.device_info import laid_out
from ...planning.options import Options
from ...planning.plan import OperatorMemory

_SCRATCH = "scratch memory of the nodes"  # which share it, as they run one after the other


class Named:
    """Base of DirectML's objects: they may have a name, and their methods are spelled as in Python."""

    _name = ""

    if not TYPE_CHECKING:  # else type checkers would take any attribute
        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError. For a name such as CreateOperator it suggests create_operator."""
            here = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            there = [member for member in dir(type(self)) if member[0] != "_"]
            hint = f"; here it is {here}" if here in there else f"; it has {', '.join(there)}"
            text = f"{type(self).__name__} has no attribute {name!r}" + hint * name[:1].isupper()
            raise AttributeError(text, name=name, obj=self)

    @property
    def name(self) -> str:
        """The name that set_name gave the object; at first empty."""
        return self._name

    def set_name(self, name: str) -> None:
        """Set the object's name (IDMLObject::SetName). Raises InvalidArgumentError unless it is a string."""
        self._name = check_type("set_name", "name", name, str)

    def _facts(self) -> str:
        """Text that repr shows after the class and the name."""
        return ""

    def __repr__(self) -> str:
        facts = (type(self).__name__, repr(self._name) if self._name else "", self._facts())
        return f"<{' '.join(filter(None, facts))}>"


class NamedOperator(Named):
    """Base of operators and graphs, whose errors contain their names. problem: the checked descriptor."""

    problem: CheckedOperator

    def _facts(self) -> str:
        return f"of {_structure(self.problem)}"

    def set_name(self, name: str) -> None:
        """Set the name (IDMLObject::SetName), which errors then contain. Raises InvalidArgumentError unless it is a string."""
        super().set_name(name)
        structure = _structure(self.problem)
        self.problem = replace(self.problem, operator=f"{structure} {name!r}" if name else structure)


def _structure(problem: CheckedOperator) -> str:
    """The name of the descriptor's structure, without the name that set_name appended to it."""
    return problem.operator.split(" ")[0]


class Operator(NamedOperator):
    """A checked operator descriptor (IDMLOperator). Device.create_operator makes it."""

    problem: Problem | PlainProblem

    def __init__(self, problem: Problem | PlainProblem) -> None:
        check_type("Operator", "problem", problem, Problem, ComputedProblem, MovedProblem)
        self.problem = problem


@dataclass(frozen=True)
class Bindings:
    """An operator and the memory bound to it, ready to be recorded. tensors: by field. temporary, persistent: the caller's
    resources; None: the operator makes its own.
    """

    compiled: CompiledOperator
    tensors: Mapping[str, Bound]
    temporary: Bound | None
    persistent: Bound | None

    @property
    def initialized(self) -> Weights | None:
        """The weights that an initializer must pack before an execution; None if there are none."""
        return self.compiled.weights(self.persistent) if self.compiled.problem.initialized else None

    def record_initialization(self, commands: Commands) -> None:
        """Record the packing of OWNED_BY_DML weights. Checks of later executions, which do not bind them, need a copy."""
        compiled, weights = self.compiled, self.initialized
        if weights is None:
            return
        compiled.record_packing(commands, self.tensors, weights)
        commands.own(weights)
        if compiled.is_verified:
            given = {field: self.tensors[field] for field in compiled.problem.initialized}
            kept = weights.contents
            commands.call(lambda: kept.update(compiled.contents(given)))

    def record(self, commands: Commands, is_checked: bool) -> None:
        """Record an execution. Raises InvalidArgumentError if a resource is too small, or the device has no room for more."""
        scratch = self.compiled.scratch(self.temporary)
        weights = self.compiled.weights(self.persistent) if self.compiled.weight_fields else None
        self.compiled.record(commands, {**self.tensors, **scratch}, weights, is_checked and self.compiled.is_verified)


class Bindable(NamedOperator, OfOneProcess):
    """Base of CompiledOperator and CompiledGraph, whose tensors a BindingTable binds for an execution."""

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The names of the inputs, in binding order."""
        return self.problem.inputs

    @property
    def output_fields(self) -> tuple[str, ...]:
        """The names of the outputs, in binding order."""
        return self.problem.outputs


class CompiledOperator(Compiled, Bindable):
    """An operator planned for a device, with its packed weights (IDMLCompiledOperator). Device.compile_operator makes it."""

    problem: Problem | PlainProblem

    def __init__(self, gpu: Gpu, problem: Problem | PlainProblem, options: Options, is_verified: bool = False) -> None:
        super().__init__(gpu, problem, options, is_verified)
        self._scratch: Mapping[str, Bound] | None = None
        self._packed: Weights | None = None
        # By a caller's buffer and the part of it: how the weights in it were packed
        self._states: WeakKeyDictionary[DeviceMemory, dict[tuple[int, int], PackState]] = WeakKeyDictionary()

    def _facts(self) -> str:
        return f"{super()._facts()} on {self.gpu.info.name}"

    def fit(self) -> None:
        """Choose a plan whose buffers beside the tensors fit on the device. Once they are made, the plan stays."""
        if self._scratch is None:
            choose_within(self.gpu, [self], lambda: self._missing)

    @working
    def get_binding_properties(self) -> DML_BINDING_PROPERTIES:
        """Count the descriptors and bytes that an execution binds (IDMLDispatchable::GetBindingProperties).

        Each buffer takes a descriptor, tensors included; the temporary resource is scratch memory, the persistent one holds the
        packed weights. A binding table may bind resources of these sizes; otherwise the package makes them itself. This call
        allocates nothing, unless plans are timed first (`VKDML_TUNING`).
        """
        return self.bound_properties()

    def bound_properties(self) -> DML_BINDING_PROPERTIES:
        """Do the same within the lock's `work`."""
        self.fit()
        return self.plan.binding_properties(self.problem, self.temporary)

    @property
    @working
    def initializer_descriptors(self) -> int:
        """The number of descriptors that an initializer of this operator binds."""
        self.fit()
        return self.plan.initializer_descriptors(self.problem)

    @working
    def memory(self) -> OperatorMemory:
        """List all buffers of an execution with their bytes, without allocating them: print(compiled.memory())."""
        self.fit()
        return self.plan.memory(self.problem)

    def nodes(self, tensors: Mapping[str, Bound], temporary: Bound | None, persistent: Bound | None) -> list[Bindings]:
        """The nodes to record, as for a graph of one node."""
        return [Bindings(self, tensors, temporary, persistent)]

    # Memory: a caller's, or the operator's own, which is made when it is first needed

    @property
    def _missing(self) -> dict[str, int]:
        """Bytes of the operator's own buffers that are not made yet, by the plan's names."""
        scratch = self._taken(self.plan.scratch) if self._scratch is None else {}
        return {**scratch, **(self.plan.packed if self._packed is None else {})}

    def _taken(self, names: Iterable[str]) -> dict[str, int]:
        """Bytes of the named scratch buffers on the device, with the host's copies of those that it reads."""
        return {name: self.gpu.bytes_of(self.plan.scratch[name], self._kind(name)) for name in names}

    def scratch(self, temporary: Bound | None) -> Mapping[str, Bound]:
        """The scratch buffers, by the plan's names. Those that the host reads are never parts of the caller's resource."""
        if temporary is not None:
            within = _parts(self.problem.operator, temporary, self.temporary)
            return {**within, **self._made(self.read, self._taken(self.read))}
        if self._scratch is None:
            self.fit()
            self._scratch = self._made(self.plan.scratch, self._missing)
        return self._scratch

    def weights(self, persistent: Bound | None) -> Weights:
        """The packed weights, in the caller's resource or in the operator's own buffers."""
        if persistent is not None:
            place = persistent.offset, persistent.size_in_bytes
            state = self._states.setdefault(persistent.buffer, {}).setdefault(place, PackState())
            return Weights(_parts(self.problem.operator, persistent, self.plan.packed), persistent, state)
        if self._packed is None:
            self._packed = Weights(self._made(self.plan.packed, self.plan.packed))
        return self._packed

    def _kind(self, name: str) -> Kind:
        return COPIED if self.is_read(name) else OWN

    def _made(self, sizes: Mapping[str, int], room: Mapping[str, int]) -> dict[str, Bound]:
        """Make buffers of these sizes, by name. room: the bytes that must be free before any is made."""
        self.gpu.memory.make_room(self.problem.operator, room)
        return self.gpu.made(lambda: {name: DeviceMemory(self.gpu, size, self._kind(name)) for name, size in sizes.items()})


class CompiledGraph(Bindable):
    """A graph whose nodes are compiled for a device. You bind and record it like a CompiledOperator. Device.compile_graph
    makes it.
    """

    def __init__(self, graph: Graph, compiled: Sequence[CompiledOperator]) -> None:
        self.problem = graph.problem
        self.gpu = compiled[0].gpu
        self._graph = graph
        self._compiled = compiled
        self._intermediate: Mapping[str, Bound] | None = None

    def _facts(self) -> str:
        return f"{super()._facts()} of {len(self._compiled)} operators on {self.gpu.info.name}"

    @working
    def get_binding_properties(self) -> DML_BINDING_PROPERTIES:
        """Count the descriptors and bytes that an execution binds (IDMLDispatchable::GetBindingProperties). The temporary
        resource holds the tensors between the nodes, and scratch memory that they share; the persistent one all packed weights.
        """
        descriptors = sum(compiled.bound_properties().RequiredDescriptorCount for compiled in self._compiled)
        return DML_BINDING_PROPERTIES(descriptors, laid_out(self._temporary)[1], laid_out(self._persistent)[1])

    def memory(self) -> OperatorMemory:
        """List all buffers of an execution with their bytes: print(graph.memory()). It assumes that no resource is bound, and
        lists the graph's tensors, the tensors between the nodes, and each node's own memory.
        """
        nodes = {f"node {node} {compiled.name!r}" if compiled.name else f"node {node}": compiled.memory()
                 for node, compiled in enumerate(self._compiled)}
        temporary = {f"{node}: {name}": size for node, memory in nodes.items() for name, size in memory.temporary.items()}
        persistent = {f"{node}: {name}": size for node, memory in nodes.items() for name, size in memory.persistent.items()}
        return OperatorMemory(self.problem.tensor_bytes, {**self._graph.intermediate, **temporary}, persistent)

    @property
    def initializer_descriptors(self) -> int:
        """The number of descriptors that an initializer of this graph binds."""
        return sum(compiled.initializer_descriptors for compiled in self._compiled)

    @property
    def _temporary(self) -> dict[str, int]:
        scratch = max(compiled.bound_properties().TemporaryResourceSize for compiled in self._compiled)
        return {**self._graph.intermediate, _SCRATCH: scratch}

    @property
    def _persistent(self) -> dict[str, int]:
        """Bytes of each node's packed weights, by the node's number."""
        return {str(node): compiled.bound_properties().PersistentResourceSize
                for node, compiled in enumerate(self._compiled)}

    def nodes(self, tensors: Mapping[str, Bound], temporary: Bound | None, persistent: Bound | None) -> list[Bindings]:
        """The nodes to record, in order."""
        operator = self.problem.operator
        memory = {**tensors, **(_parts(operator, temporary, self._temporary) if temporary else self._made())}
        packed = _parts(operator, persistent, self._persistent) if persistent else {}
        return [Bindings(
            self._compiled[node],
            {field: memory[name] for field, name in self._graph.names[node].items() if name in memory},
            part(memory.get(_SCRATCH), self._compiled[node].bound_properties().TemporaryResourceSize),
            part(packed.get(str(node)), self._persistent[str(node)])) for node in self._graph.order]

    def _made(self) -> Mapping[str, Bound]:
        """The tensors between the nodes, in buffers that the graph makes for itself."""
        if self._intermediate is None:
            gpu, sizes = self.gpu, self._graph.intermediate
            kind = COPIED if any(compiled.is_verified for compiled in self._compiled) else OWN
            gpu.memory.make_room(self.problem.operator, {name: gpu.bytes_of(sizes[name], kind) for name in sizes})
            self._intermediate = gpu.made(lambda: {name: DeviceMemory(gpu, sizes[name], kind) for name in sizes})
        return self._intermediate


def part(resource: Bound | None, size: int) -> Bound | None:
    """The first bytes of a resource; None if there is no resource, or no byte is needed."""
    return Range(resource.buffer, resource.offset, size) if resource and size else None


def _parts(operator: str, within: Bound, sizes: Mapping[str, int]) -> dict[str, Bound]:
    """Divide a resource into named parts of these sizes. operator: its name in errors.

    Raises InvalidArgumentError if they do not fit: another plan was chosen since the resource was bound.
    """
    places, size = laid_out(sizes)
    if size > within.size_in_bytes:
        raise InvalidArgumentError(operator, "a bound resource", f"{within.size_in_bytes} bytes",
                                   f"{size}, as get_binding_properties says now")
    return {name: Range(within.buffer, within.offset + places[name], size) for name, size in sizes.items()}
