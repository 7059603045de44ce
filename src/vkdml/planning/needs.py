"""What a plan takes of a device's memory, and what it binds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..operators.checks import CheckedOperator
from ..operators.header.descs import DML_BINDING_PROPERTIES
from .device_info import laid_out
from .dispatches import Dispatch
from .plan import Plan


@dataclass(frozen=True)
class OperatorMemory:
    """Bytes that an operator takes on its device, by name. Its str() is a table.

    tensors: the buffers that a caller binds, at least. temporary: what an execution needs meanwhile. persistent: the packed
    weights. Where the device has memory of its own, the host has a copy of each tensor beside them.
    """

    tensors: Mapping[str, int]
    temporary: Mapping[str, int]
    persistent: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(size for _, _, size in self.rows)

    @property
    def rows(self) -> list[tuple[str, str, int]]:
        """What each is, its name and its bytes."""
        groups = {"tensor": self.tensors, "temporary": self.temporary, "persistent": self.persistent}
        return [(what, name, size) for what, sizes in groups.items() for name, size in sizes.items()]

    def __str__(self) -> str:
        rows = [*self.rows, ("total", "", self.total)]
        widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
        return "\n".join(f"{what:<{widths[0]}}  {name:<{widths[1]}}  {size:>{widths[2]}}" for what, name, size in rows)


def memory(problem: CheckedOperator, plan: Plan) -> OperatorMemory:
    return OperatorMemory(_of_tensors(problem), plan.scratch, plan.packed)


def memory_of_graph(problem: CheckedOperator, intermediate: Mapping[str, int], nodes: Mapping[str, OperatorMemory]
                    ) -> OperatorMemory:
    """intermediate: bytes of what goes between the nodes, by name. nodes: by name."""
    temporary = {f"{node}: {name}": size for node, memory in nodes.items() for name, size in memory.temporary.items()}
    persistent = {f"{node}: {name}": size for node, memory in nodes.items() for name, size in memory.persistent.items()}
    return OperatorMemory(_of_tensors(problem), {**intermediate, **temporary}, persistent)


def _of_tensors(problem: CheckedOperator) -> dict[str, int]:
    return {field: tensor.size_in_bytes for field, tensor in problem.tensors.items() if tensor}


def of_execution(problem: CheckedOperator, plan: Plan, temporary: Mapping[str, int]) -> DML_BINDING_PROPERTIES:
    """temporary: bytes of what a temporary resource holds, by name."""
    packing = () if problem.initialized else plan.initialize
    return DML_BINDING_PROPERTIES(_descriptors((*packing, *plan.execute, *plan.fallback)), laid_out(temporary)[1],
                                  laid_out(plan.packed)[1])


def of_initialization(problem: CheckedOperator, plan: Plan) -> int:
    """Number of descriptors. An initializer has no resource beside: the operator's persistent one is its output."""
    return _descriptors(plan.initialize if problem.initialized else ())


def _descriptors(dispatches: Iterable[Dispatch]) -> int:
    """Number of descriptors: one for each buffer."""
    return len({name for dispatch in dispatches for name in dispatch.buffers.values()})
