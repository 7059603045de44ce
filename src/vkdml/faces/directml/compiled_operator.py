"""DirectML's operators and graphs of them: named, checked, and compiled for a device, with memory of their own where a caller
binds none.

A graph is recorded node by node, each as if it were recorded alone; what goes from one to another stays on the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakKeyDictionary

from ...engine.commands import Commands
from ...engine.compiled import Compiled, choose_within
from ...engine.vulkan.buffers import Bound, Buffer, Range
from ...engine.vulkan.gpu import Gpu
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

_SCRATCH = "scratch memory of the nodes"  # they run one after the other


class Named:
    """An object of DirectML's, which may have a name, and whose methods have Python's spelling."""

    _name = ""

    if not TYPE_CHECKING:  # else type checkers would take any attribute
        def __getattr__(self, name: str) -> NoReturn:
            """Tell who asks for CreateOperator of create_operator."""
            here = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            hint = f"; here it is {here}" if name[:1].isupper() and hasattr(type(self), here) else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def name(self) -> str:
        """The name that set_name gave it; at first empty."""
        return self._name

    def set_name(self, name: str) -> None:
        """Name it (IDMLObject::SetName). Raises InvalidArgumentError for what is no string."""
        self._name = check_type("set_name", "name", name, str)

    @property
    def _facts(self) -> str:
        """Text that repr shows beside the class and the name."""
        return ""

    def __repr__(self) -> str:
        facts = (type(self).__name__, repr(self._name) if self._name else "", self._facts)
        return f"<{' '.join(filter(None, facts))}>"


class NamedOperator(Named):
    """An object whose errors begin with the name too. problem: the checked descriptor."""

    problem: CheckedOperator

    @property
    def _facts(self) -> str:
        return f"of {_structure(self.problem)}"

    def set_name(self, name: str) -> None:
        """Name it (IDMLObject::SetName): its errors tell the name. Raises InvalidArgumentError for what is no string."""
        super().set_name(name)
        structure = _structure(self.problem)
        self.problem = replace(self.problem, operator=f"{structure} {name!r}" if name else structure)


def _structure(problem: CheckedOperator) -> str:
    """The structure, without an operator's name."""
    return problem.operator.split(" ")[0]


class Operator(NamedOperator):
    """A checked operator descriptor (IDMLOperator). Made by Device.create_operator.

    problem: the checked descriptor.
    """

    problem: Problem | PlainProblem

    def __init__(self, problem: Problem | PlainProblem) -> None:
        check_type("Operator", "problem", problem, Problem, ComputedProblem, MovedProblem)
        self.problem = problem


@dataclass(frozen=True)
class Bindings:
    """An operator with what is bound to it. tensors: by field. temporary, persistent: a caller's resources; None: the
    operator's own memory.
    """

    compiled: CompiledOperator
    tensors: Mapping[str, Bound]
    temporary: Bound | None
    persistent: Bound | None

    @property
    def initialized(self) -> Weights | None:
        """Weights that an initializer must have packed before an execution; None: there are none."""
        return self.compiled.weights(self.persistent) if self.compiled.problem.initialized else None

    def record_initialization(self, commands: Commands) -> None:
        """Record what packs OWNED_BY_DML weights. Where executions are checked, their bytes are kept, as none binds them."""
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
        """Record an execution. Raises InvalidArgumentError where the device has no room for the operator's own memory, or the
        resources are too small.
        """
        scratch = self.compiled.scratch(self.temporary)
        weights = self.compiled.weights(self.persistent) if self.compiled.weight_fields else None
        self.compiled.record(commands, {**self.tensors, **scratch}, weights, is_checked and self.compiled.is_verified)


class Bindable(NamedOperator, OfOneProcess):
    """Base of CompiledOperator and CompiledGraph, which a binding table binds for an execution."""

    @property
    def input_fields(self) -> tuple[str, ...]:
        """Its inputs in binding order."""
        return self.problem.inputs

    @property
    def output_fields(self) -> tuple[str, ...]:
        """Its outputs in binding order."""
        return self.problem.outputs


class CompiledOperator(Compiled, Bindable):
    """An operator planned for a device, and its packed weights (IDMLCompiledOperator). Made by Device.compile_operator."""

    problem: Problem | PlainProblem

    def __init__(self, gpu: Gpu, problem: Problem | PlainProblem, options: Options, is_verified: bool = False) -> None:
        super().__init__(gpu, problem, options, is_verified)
        self._scratch: Mapping[str, Bound] | None = None
        self._packed: Weights | None = None
        # What is known of weights in callers' resources, by the buffer and the part of it
        self._states: WeakKeyDictionary[Buffer, dict[tuple[int, int], PackState]] = WeakKeyDictionary()

    @property
    def _facts(self) -> str:
        return f"{super()._facts} on {self.gpu.info.name}"

    def fit(self) -> None:
        """Decide on the plan of which the device has room for all buffers beside the tensors. Once they are made, it stays."""
        with self.gpu.lock:
            if self._scratch is None:
                choose_within(self.gpu, [self], lambda: self._missing)

    def get_binding_properties(self) -> DML_BINDING_PROPERTIES:
        """Descriptors and resources of an execution (IDMLDispatchable::GetBindingProperties).

        A descriptor for each buffer, the tensors' among them; temporary: scratch memory; persistent: the packed weights. A
        binding table may bind resources of these sizes; where it does not, the package makes them itself. Nothing is allocated
        here, but where a plan is timed first (`VKDML_TUNING`).
        """
        self.fit()
        return self.plan.binding_properties(self.problem, self.temporary)

    @property
    def initializer_descriptors(self) -> int:
        """Number of descriptors that its initializer binds."""
        self.fit()
        return self.plan.initializer_descriptors(self.problem)

    def memory(self) -> OperatorMemory:
        """The bytes of all buffers of an execution, by name: print(compiled.memory()). As get_binding_properties, it allocates
        nothing.
        """
        self.fit()
        return self.plan.memory(self.problem)

    def nodes(self, tensors: Mapping[str, Bound], temporary: Bound | None, persistent: Bound | None) -> list[Bindings]:
        """The nodes to record: itself, as a graph of one node."""
        return [Bindings(self, tensors, temporary, persistent)]

    # Memory: a caller's, or its own, which is made when it is first needed

    @property
    def _missing(self) -> dict[str, int]:
        """Bytes of the buffers of its own that are not made yet, by the plan's names."""
        scratch = {**self.temporary, **self.read} if self._scratch is None else {}
        return {**self._taken(scratch), **(self.plan.packed if self._packed is None else {})}

    def _taken(self, sizes: Iterable[str]) -> dict[str, int]:
        return {name: self.gpu.bytes_of(self.plan.scratch[name], self.is_read(name)) for name in sizes}

    def scratch(self, temporary: Bound | None) -> Mapping[str, Bound]:
        """The scratch buffers, by the plan's names: parts of a caller's resource, and what the host reads beside it."""
        if temporary is not None:
            within = _parts(self.problem.operator, temporary, self.temporary)
            return {**within, **self._made(self.read, self._taken(self.read))}
        with self.gpu.lock:
            if self._scratch is None:
                self.fit()
                self._scratch = self._made({**self.temporary, **self.read}, self._missing)
            return self._scratch

    def weights(self, persistent: Bound | None) -> Weights:
        """The packed weights: in a caller's resource, or in its own."""
        with self.gpu.lock:
            if persistent is not None:
                place = persistent.offset, persistent.size_in_bytes
                state = self._states.setdefault(persistent.buffer, {}).setdefault(place, PackState())
                return Weights(_parts(self.problem.operator, persistent, self.plan.packed), persistent, state)
            if self._packed is None:
                self._packed = Weights(self._made(self.plan.packed, self.plan.packed))
            return self._packed

    def _made(self, sizes: Mapping[str, int], room: Mapping[str, int]) -> dict[str, Bound]:
        """Buffers of so many bytes, by name. room: the bytes that there must be before they are made."""
        self.gpu.memory.make_room(self.problem.operator, room)
        return self.gpu.made(lambda: {name: Buffer(self.gpu, size, self.is_read(name)) for name, size in sizes.items()})


class CompiledGraph(Bindable):
    """A graph whose nodes are compiled for a device. It is bound and recorded as a CompiledOperator: its inputs are those of
    the graph. Made by Device.compile_graph.
    """

    def __init__(self, graph: Graph, compiled: Sequence[CompiledOperator]) -> None:
        self.problem = graph.problem
        self.gpu = compiled[0].gpu
        self._graph = graph
        self._compiled = compiled
        self._intermediate: Mapping[str, Bound] | None = None

    @property
    def _facts(self) -> str:
        return f"{super()._facts} of {len(self._compiled)} operators on {self.gpu.info.name}"

    def get_binding_properties(self) -> DML_BINDING_PROPERTIES:
        """Descriptors and resources of an execution (IDMLDispatchable::GetBindingProperties): temporary, the tensors between
        the nodes, and scratch memory that the nodes use in turn; persistent, the packed weights of all.
        """
        descriptors = sum(compiled.get_binding_properties().RequiredDescriptorCount for compiled in self._compiled)
        return DML_BINDING_PROPERTIES(descriptors, laid_out(self._temporary)[1], laid_out(self._persistent)[1])

    def memory(self) -> OperatorMemory:
        """The bytes of all buffers of an execution, by name, where no resource is bound: print(graph.memory()). As
        CompiledOperator.memory: of the graph's tensors, of what goes between the nodes, and of each node beside that.
        """
        nodes = {f"node {node} {compiled.name!r}" if compiled.name else f"node {node}": compiled.memory()
                 for node, compiled in enumerate(self._compiled)}
        temporary = {f"{node}: {name}": size for node, memory in nodes.items() for name, size in memory.temporary.items()}
        persistent = {f"{node}: {name}": size for node, memory in nodes.items() for name, size in memory.persistent.items()}
        return OperatorMemory(self.problem.tensor_bytes, {**self._graph.intermediate, **temporary}, persistent)

    @property
    def initializer_descriptors(self) -> int:
        """Number of descriptors that an initializer of it binds."""
        return sum(compiled.initializer_descriptors for compiled in self._compiled)

    @property
    def _temporary(self) -> dict[str, int]:
        scratch = max(compiled.get_binding_properties().TemporaryResourceSize for compiled in self._compiled)
        return {**self._graph.intermediate, _SCRATCH: scratch}

    @property
    def _persistent(self) -> dict[str, int]:
        """Bytes by node."""
        return {str(node): compiled.get_binding_properties().PersistentResourceSize
                for node, compiled in enumerate(self._compiled)}

    def nodes(self, tensors: Mapping[str, Bound], temporary: Bound | None, persistent: Bound | None) -> list[Bindings]:
        """The nodes to record, in order."""
        operator = self.problem.operator
        memory = {**tensors, **(_parts(operator, temporary, self._temporary) if temporary else self._made())}
        packed = _parts(operator, persistent, self._persistent) if persistent else {}
        return [Bindings(
            self._compiled[node],
            {field: memory[name] for field, name in self._graph.names[node].items() if name in memory},
            _part(memory.get(_SCRATCH), self._compiled[node].get_binding_properties().TemporaryResourceSize),
            _part(packed.get(str(node)), self._persistent[str(node)])) for node in self._graph.order]

    def _made(self) -> Mapping[str, Bound]:
        """The tensors between the nodes, in buffers of the package's own."""
        with self.gpu.lock:
            if self._intermediate is None:
                is_read = any(compiled.is_verified for compiled in self._compiled)
                sizes = self._graph.intermediate
                self.gpu.memory.make_room(self.problem.operator, {
                    name: self.gpu.bytes_of(size, is_read) for name, size in sizes.items()})
                self._intermediate = self.gpu.made(lambda: {
                    name: Buffer(self.gpu, size, is_read) for name, size in sizes.items()})
            return self._intermediate


def _part(resource: Bound | None, size: int) -> Bound | None:
    """The part of a resource that one node needs; None: it needs nothing, or has the package's own."""
    return Range(resource.buffer, resource.offset, size) if resource and size else None


def _parts(operator: str, within: Bound, sizes: Mapping[str, int]) -> dict[str, Bound]:
    """The parts of a resource, one for each of so many bytes, by name. operator: its name in errors.

    Raises InvalidArgumentError where they do not fit: since it was bound, another plan was chosen.
    """
    places, size = laid_out(sizes)
    if size > within.size_in_bytes:
        raise InvalidArgumentError(operator, "a bound resource", f"{within.size_in_bytes} bytes",
                                   f"{size}, as get_binding_properties says now")
    return {name: Range(within.buffer, within.offset + places[name], size) for name, size in sizes.items()}
