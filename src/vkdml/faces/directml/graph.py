"""Graphs of operators, compiled: DirectML's IDMLDevice1::CompileGraph.

A graph is recorded node by node, each as if it were recorded alone; what goes from one to another stays on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...engine.vulkan.buffers import Bound, Buffer, Range, parts
from ...operators.graph_checks import Graph
from ...operators.header.descs import DML_BINDING_PROPERTIES
from ...planning.needs import OperatorMemory, laid_out, memory_of_graph
from .compiled_operator import Bindable, Bindings, CompiledOperator

_SCRATCH = "scratch memory of the nodes"  # they run one after the other


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
        return memory_of_graph(self.problem, self._graph.intermediate, nodes)

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
        memory = {**tensors, **(parts(operator, temporary, self._temporary) if temporary else self._made())}
        packed = parts(operator, persistent, self._persistent) if persistent else {}
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
                self._intermediate = {name: Buffer(self.gpu, size, is_read) for name, size in sizes.items()}
            return self._intermediate


def _part(resource: Bound | None, size: int) -> Bound | None:
    """The part of a resource that one node needs; None: it needs nothing, or has the package's own."""
    return Range(resource.buffer, resource.offset, size) if resource and size else None
