"""Which buffer is which tensor: DirectML's binding table."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidArgumentError
from .compiled import CompiledOperator, Dispatchable, OperatorInitializer, check_type
from .device import Buffer
from .naming import Named


class BindingTable(Named):
    """Buffers bound to the tensors of a compiled operator or of its initializer (IDMLBindingTable).

    An initializer takes the OWNED_BY_DML tensors; an execution takes all others. Made by Device.create_binding_table.
    """

    def __init__(self, dispatchable: Dispatchable) -> None:
        self.reset(dispatchable)

    def reset(self, dispatchable: Dispatchable) -> None:
        """Start anew with nothing bound, for this dispatchable (IDMLBindingTable::Reset)."""
        check_type("create_binding_table", "dispatchable", dispatchable, (CompiledOperator, OperatorInitializer))
        self.dispatchable = dispatchable
        self.initializing = isinstance(dispatchable, OperatorInitializer)
        self.compiled = dispatchable.compiled if isinstance(dispatchable, OperatorInitializer) else dispatchable
        self.bound: dict[str, Buffer] = {}

    @property
    def _facts(self) -> str:
        return f"of {self.dispatchable}"

    def bind_inputs(self, bindings: Sequence[Buffer | None]) -> None:
        """Bind the inputs, in the order of CompiledOperator.input_fields (IDMLBindingTable::BindInputs).

        A binding is None where the descriptor has no tensor, and where this dispatchable takes none: weights and bias in an
        execution, all else in an initialization.

        Raises InvalidArgumentError for a buffer that is missing, not taken here, too small or of another device.
        """
        self._bind("bind_inputs", self.compiled.input_fields, bindings)

    def bind_outputs(self, bindings: Sequence[Buffer | None]) -> None:
        """Bind the outputs, in the order of CompiledOperator.output_fields (IDMLBindingTable::BindOutputs).

        A binding is None where the descriptor has no tensor. Raises what bind_inputs raises.
        """
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
        if not isinstance(bindings, Sequence) or len(bindings) != len(fields):
            found = f"{len(bindings)} bindings" if isinstance(bindings, Sequence) else type(bindings).__name__
            raise InvalidArgumentError(operator, call, found, f"{len(fields)}: {', '.join(fields)}")
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
