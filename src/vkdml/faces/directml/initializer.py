"""DirectML's initializer of operators, and what can be dispatched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InvalidArgumentError
from ...operators.header.descs import DML_BINDING_PROPERTIES
from .compiled_operator import CompiledOperator, check_type
from .graph import CompiledGraph
from .naming import Named

Compiled = CompiledOperator | CompiledGraph


class OperatorInitializer(Named):
    """Packs the weights of compiled operators and graphs that were described as OWNED_BY_DML, and else does nothing
    (IDMLOperatorInitializer). Made by Device.create_operator_initializer.

    operators: what it initializes. takes_arrays: whether it was given a list of them.
    """

    def __init__(self, compiled: Compiled | Sequence[Compiled]) -> None:
        self._set("create_operator_initializer", compiled)

    def reset(self, compiled: Compiled | Sequence[Compiled]) -> None:
        """Initialize other operators from now on (IDMLOperatorInitializer::Reset). Tables of it must be reset too."""
        self._set("reset", compiled)

    def _set(self, call: str, compiled: Compiled | Sequence[Compiled]) -> None:
        self.takes_arrays = isinstance(compiled, list | tuple)
        operators: Any = compiled if self.takes_arrays else [compiled]
        for operator in operators:
            check_type(call, "compiled", operator, (CompiledOperator, CompiledGraph))
        if len({operator.gpu for operator in operators}) != 1:
            raise InvalidArgumentError(call, "compiled", f"{len(operators)} operators", "one at least, all of one device")
        self.operators: list[Compiled] = list(operators)

    @property
    def _facts(self) -> str:
        return "of " + ", ".join(map(str, self.operators))

    def get_binding_properties(self) -> DML_BINDING_PROPERTIES:
        """Descriptors and resources of an initialization, as of a CompiledOperator. It packs into the operators' persistent
        resources.
        """
        return DML_BINDING_PROPERTIES(sum(operator.initializer_descriptors for operator in self.operators), 0, 0)


Dispatchable = Compiled | OperatorInitializer
DISPATCHABLES = (CompiledOperator, CompiledGraph, OperatorInitializer)
