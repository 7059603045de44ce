"""DirectML's binding table: which memory is which tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.vulkan.buffers import Bound
from ...errors import InvalidArgumentError
from ...planning.needs import ALIGNMENT
from .compiled_operator import check_type
from .initializer import DISPATCHABLES, Compiled, Dispatchable, OperatorInitializer
from .naming import Named
from .resources import of_array, resolve, resolve_resource


class OperatorBindings:
    """Bindings of one operator in a table: for an execution, or for its initializer.

    bound: the tensors' memory, by field. persistent: the caller's resource for packed weights.
    """

    def __init__(self, compiled: Compiled, initializing: bool) -> None:
        self.compiled = compiled
        self._initializing = initializing
        self.bound: dict[str, Bound] = {}
        self.persistent: Bound | None = None

    def missing(self) -> list[str]:
        """Fields still to be bound before this can be recorded."""
        fields = (*self.compiled.input_fields, *self.compiled.output_fields)
        return [field for field in fields if self._takes(field) and field not in self.bound]

    def _takes(self, field: str) -> bool:
        problem = self.compiled.problem
        return problem.has(field) and (field in problem.initialized) == self._initializing

    def bind(self, call: str, fields: Sequence[str], bindings: Sequence[object]) -> None:
        """Bind each field; an empty list unbinds all."""
        operator = self.compiled.problem.operator
        if not isinstance(bindings, Sequence) or len(bindings) not in (0, len(fields)):
            found = f"{len(bindings)} bindings" if isinstance(bindings, Sequence) else type(bindings).__name__
            raise InvalidArgumentError(operator, call, found, f"{len(fields)}: {', '.join(fields)}")
        resolved = {field: self._resolved(operator, f"{call}: {field}", field, binding)
                    for field, binding in zip(fields, bindings)}
        self.bound = {field: memory for field, memory in self.bound.items() if field not in fields}
        self.bound |= {field: memory for field, memory in resolved.items() if memory}

    def _resolved(self, operator: str, argument: str, field: str, binding: object) -> Bound | None:
        problem, gpu = self.compiled.problem, self.compiled.gpu
        takes = self._takes(field)
        size, alignment = (problem.tensor(field).size_in_bytes, problem.tensor(field).alignment) if takes else (0, 1)
        memory = resolve(operator, argument, binding, size, alignment, gpu)
        if memory and not takes:
            when = "has no tensor here" if not problem.has(field) else (
                "is bound to the operator: reset the table" if self._initializing else "is bound to the initializer")
            raise InvalidArgumentError(operator, argument, "a buffer", f"None: it {when}")
        if takes and memory is None:
            raise InvalidArgumentError(operator, argument, type(binding).__name__, f"a Buffer of {size} bytes or more")
        return memory

    def bind_persistent(self, call: str, binding: object) -> None:
        size = self.compiled.get_binding_properties().PersistentResourceSize
        self.persistent = resolve_resource(self.compiled.problem.operator, call, binding, size, ALIGNMENT, self.compiled.gpu)


class BindingTable(Named):
    """Memory bound to the tensors of a compiled operator, or of the operators of an initializer (IDMLBindingTable).

    An initializer takes the OWNED_BY_DML tensors; an execution takes all others. Made by Device.create_binding_table.

    A binding is a Buffer, or a part of one: DML_BUFFER_BINDING, whose offset is a multiple of 16, of the tensor's
    GuaranteedBaseOffsetAlignment, and of DeviceInfo.storage_buffer_alignment. DML_BINDING_DESC around it is taken too.
    """

    def __init__(self, dispatchable: Dispatchable) -> None:
        self.reset(dispatchable)

    def reset(self, dispatchable: Dispatchable) -> None:
        """Start anew with nothing bound, for this dispatchable (IDMLBindingTable::Reset)."""
        check_type("create_binding_table", "dispatchable", dispatchable, DISPATCHABLES)
        self.dispatchable = dispatchable
        initializing = isinstance(dispatchable, OperatorInitializer)
        operators = dispatchable.operators if isinstance(dispatchable, OperatorInitializer) else [dispatchable]
        self.parts = [OperatorBindings(compiled, initializing) for compiled in operators]
        self.temporary: Bound | None = None

    @property
    def _facts(self) -> str:
        return f"of {self.dispatchable}"

    def bind_inputs(self, bindings: Sequence[object]) -> None:
        """Bind the inputs, in the order of CompiledOperator.input_fields (IDMLBindingTable::BindInputs). For an initializer of
        a list, a DML_BUFFER_ARRAY_BINDING of such bindings for each operator.

        A binding is None where the descriptor has no tensor, and where this dispatchable takes none: weights and bias in an
        execution, all else in an initialization. An empty list unbinds all of them.

        Raises InvalidArgumentError for memory that is missing, not taken here, too small, misaligned or of another device.
        """
        if isinstance(self.dispatchable, OperatorInitializer) and self.dispatchable.takes_arrays:
            self._expect_one_each("bind_inputs", bindings)
            for i, part in enumerate(self.parts):
                fields, operator = part.compiled.input_fields, part.compiled.problem.operator
                array = of_array(operator, "bind_inputs", bindings[i], len(fields)) if bindings else []
                part.bind("bind_inputs", fields, array)
        else:
            self.parts[0].bind("bind_inputs", self.parts[0].compiled.input_fields, bindings)

    def bind_outputs(self, bindings: Sequence[object]) -> None:
        """Bind the outputs, in the order of CompiledOperator.output_fields (IDMLBindingTable::BindOutputs). For an initializer,
        the persistent resource of each operator; None: the package makes it.

        A binding is None where the descriptor has no tensor. An empty list unbinds all. Raises what bind_inputs raises.
        """
        if isinstance(self.dispatchable, OperatorInitializer):
            self._expect_one_each("bind_outputs", bindings)
            for part, binding in zip(self.parts, bindings or [None] * len(self.parts)):
                part.bind_persistent("bind_outputs", binding)
        else:
            self.parts[0].bind("bind_outputs", self.parts[0].compiled.output_fields, bindings)

    def bind_temporary_resource(self, binding: object) -> None:
        """Bind scratch memory of TemporaryResourceSize bytes (IDMLBindingTable::BindTemporaryResource). None: the package makes
        it. Its offset is a multiple of DML_TEMPORARY_BUFFER_ALIGNMENT.

        Nobody else may use it during an execution. Raises what bind_inputs raises, and for a kp that cannot bind parts.
        """
        compiled = self.parts[0].compiled
        self.temporary = resolve_resource(compiled.problem.operator, "bind_temporary_resource", binding,
                                          self.dispatchable.get_binding_properties().TemporaryResourceSize, ALIGNMENT,
                                          compiled.gpu)

    def bind_persistent_resource(self, binding: object) -> None:
        """Bind memory of PersistentResourceSize bytes for packed weights (IDMLBindingTable::BindPersistentResource), which an
        initializer has filled, or executions fill. None: the package makes it. Its offset is a multiple of
        DML_PERSISTENT_BUFFER_ALIGNMENT.

        It is the operator's from then on: where anybody else has written to it, an execution packs the weights again, and one
        of OWNED_BY_DML weights is refused. Raises what bind_temporary_resource raises, and for an initializer, whose
        outputs persistent resources are.
        """
        if isinstance(self.dispatchable, OperatorInitializer) and binding is not None:
            raise InvalidArgumentError("OperatorInitializer", "bind_persistent_resource", type(binding).__name__,
                                       "None: the operators' persistent resources are its outputs")
        self.parts[0].bind_persistent("bind_persistent_resource", binding)

    def _expect_one_each(self, call: str, bindings: Sequence[object]) -> None:
        if not isinstance(bindings, list | tuple) or len(bindings) not in (0, len(self.parts)):
            found = f"{len(bindings)} bindings" if isinstance(bindings, list | tuple) else type(bindings).__name__
            raise InvalidArgumentError("OperatorInitializer", call, found, f"{len(self.parts)}: one for each operator")
