"""DirectML's initializer and its binding table: which memory is which tensor.

Source: DirectML's page "Binding in DirectML".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from ...engine.vulkan.buffers import Bound, Buffer, Range, overlap
from ...engine.vulkan.gpu import Gpu
from ...errors import InvalidArgumentError, check_type, shown
from ...operators.checks import CheckedOperator, integers, is_count, is_one_of
from ...operators.header.descs import DML_BINDING_PROPERTIES
from ...operators.header.device_descs import (
    DML_BINDING_DESC,
    DML_BINDING_TABLE_DESC,
    DML_BINDING_TYPE,
    DML_BUFFER_ARRAY_BINDING,
    DML_BUFFER_BINDING,
)
from ...planning.device_info import ALIGNMENT
from .compiled_operator import CompiledGraph, CompiledOperator, Named

Compiled = CompiledOperator | CompiledGraph
Method = TypeVar("Method", bound=Callable[..., Any])


def counted(method: Method) -> Method:
    """Let a method of one list take its count before it too, as in DirectML."""
    @wraps(method)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        if len(arguments) == 2:
            count, listed = arguments
            arguments = (listed,)
            length = len(listed) if isinstance(listed, list | tuple) else -1
            if not is_one_of(count, [length]):
                raise InvalidArgumentError(method.__name__, "count", f"{shown(count)} with a {type(listed).__name__}",
                                           f"{length}, the list's length" if length >= 0 else "a list behind it")
        return method(self, *arguments, **named)

    return cast(Method, called)


class OperatorInitializer(Named):
    """Packs the weights of compiled operators and graphs that were described as OWNED_BY_DML, and else does nothing
    (IDMLOperatorInitializer). Made by Device.create_operator_initializer.

    operators: what it initializes. takes_arrays: whether it was given a list of them.
    """

    def __init__(self, compiled: Compiled | Sequence[Compiled]) -> None:
        self._set("create_operator_initializer", compiled)

    @counted
    def reset(self, compiled: Compiled | Sequence[Compiled]) -> None:
        """Initialize other operators from now on (IDMLOperatorInitializer::Reset). Tables of it must be reset too."""
        self._set("reset", compiled)

    def _set(self, call: str, compiled: Compiled | Sequence[Compiled]) -> None:
        self.takes_arrays = isinstance(compiled, list | tuple)
        operators: Any = compiled if self.takes_arrays else [compiled]
        for operator in operators:
            check_type(call, "compiled", operator, CompiledOperator, CompiledGraph)
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
        _check_count(operator, call, bindings, len(fields), ", ".join(fields))
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

    def __init__(self, dispatchable: Dispatchable | DML_BINDING_TABLE_DESC) -> None:
        self.reset(dispatchable)

    def reset(self, dispatchable: Dispatchable | DML_BINDING_TABLE_DESC) -> None:
        """Start anew with nothing bound, for this dispatchable (IDMLBindingTable::Reset)."""
        desc = dispatchable if isinstance(dispatchable, DML_BINDING_TABLE_DESC) else DML_BINDING_TABLE_DESC(dispatchable)
        inner: Dispatchable = desc.Dispatchable
        check_type("create_binding_table", "dispatchable", inner, *DISPATCHABLES)
        if desc.SizeInDescriptors is not None:
            needed = inner.get_binding_properties().RequiredDescriptorCount
            if integers("DML_BINDING_TABLE_DESC", "SizeInDescriptors", (desc.SizeInDescriptors,), 0)[0] < needed:
                raise InvalidArgumentError("DML_BINDING_TABLE_DESC", "SizeInDescriptors", desc.SizeInDescriptors,
                                           f"{needed} or more")
        self.dispatchable = inner
        initializing = isinstance(inner, OperatorInitializer)
        operators = inner.operators if isinstance(inner, OperatorInitializer) else [inner]
        self.parts = [OperatorBindings(compiled, initializing) for compiled in operators]
        self.temporary: Bound | None = None

    @property
    def _facts(self) -> str:
        return f"of {self.dispatchable}"

    @counted
    def bind_inputs(self, bindings: Sequence[object]) -> None:
        """Bind the inputs, in the order of CompiledOperator.input_fields (IDMLBindingTable::BindInputs). For an initializer of
        a list, a DML_BUFFER_ARRAY_BINDING of such bindings for each operator.

        A binding is None where the descriptor has no tensor, and where this dispatchable takes none: weights and bias in an
        execution, all else in an initialization. An empty list unbinds all of them.

        Raises InvalidArgumentError for memory that is missing, not taken here, too small, misaligned or of another device.
        """
        if isinstance(self.dispatchable, OperatorInitializer) and self.dispatchable.takes_arrays:
            _check_count("OperatorInitializer", "bind_inputs", bindings, len(self.parts), "one for each operator")
            for i, part in enumerate(self.parts):
                fields, operator = part.compiled.input_fields, part.compiled.problem.operator
                array = of_array(operator, "bind_inputs", bindings[i], len(fields)) if bindings else []
                part.bind("bind_inputs", fields, array)
        else:
            self.parts[0].bind("bind_inputs", self.parts[0].compiled.input_fields, bindings)

    @counted
    def bind_outputs(self, bindings: Sequence[object]) -> None:
        """Bind the outputs, in the order of CompiledOperator.output_fields (IDMLBindingTable::BindOutputs). For an initializer,
        the persistent resource of each operator; None: the package makes it.

        A binding is None where the descriptor has no tensor. An empty list unbinds all. Raises what bind_inputs raises.
        """
        if isinstance(self.dispatchable, OperatorInitializer):
            _check_count("OperatorInitializer", "bind_outputs", bindings, len(self.parts), "one for each operator")
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


def _check_count(operator: str, call: str, bindings: object, count: int, which: str) -> None:
    """Refuse what is no list of so many bindings, nor empty. which: what they are for."""
    if not isinstance(bindings, Sequence) or len(bindings) not in (0, count):
        found = f"{len(bindings)} bindings" if isinstance(bindings, Sequence) else type(bindings).__name__
        raise InvalidArgumentError(operator, call, found, f"{count}: {which}")


def resolve(operator: str, field: str, binding: object, size: int, alignment: int, gpu: Gpu) -> Bound | None:
    """The memory for `size` bytes, which must begin at a multiple of an alignment, and of the device's; None: no binding.

    Raises InvalidArgumentError for what is no binding, too small, misaligned, not within its buffer, or of another device.
    """
    given = _inner(operator, field, binding, DML_BINDING_TYPE.BUFFER)
    if given is None or (isinstance(given, DML_BUFFER_BINDING) and given.Buffer is None):
        return None
    part = DML_BUFFER_BINDING(given) if isinstance(given, Buffer) else given
    if not isinstance(part, DML_BUFFER_BINDING) or not isinstance(part.Buffer, Buffer):
        found = part.Buffer if isinstance(part, DML_BUFFER_BINDING) else part
        raise InvalidArgumentError(operator, field, type(found).__name__, f"a Buffer of {size} bytes or more")
    buffer: Buffer = part.Buffer
    if buffer.gpu is not gpu:
        raise InvalidArgumentError(operator, field, f"a buffer of {buffer.gpu.info.name}", "a buffer of the operator's device")
    buffer._expect_open()
    (offset,) = integers(operator, f"{field}: Offset", (part.Offset,), 0)
    room = buffer.size_in_bytes - offset
    given_size = room if part.SizeInBytes is None else integers(operator, f"{field}: SizeInBytes", (part.SizeInBytes,), 0)[0]
    if not 0 <= given_size <= room:
        raise InvalidArgumentError(operator, field, f"{max(given_size, 0)} bytes from {offset} on",
                                   f"a part of the buffer's {buffer.size_in_bytes} bytes")
    if given_size < size:
        raise InvalidArgumentError(operator, field, f"{given_size} bytes", f"{size} bytes or more")
    return buffer if part is not given else _range(operator, field, buffer, offset, size, alignment)


def _range(operator: str, field: str, buffer: Buffer, offset: int, size: int, alignment: int) -> Bound:
    alignment = max(alignment, buffer.gpu.info.storage_buffer_alignment)
    if offset % alignment:
        raise InvalidArgumentError(operator, f"{field}: Offset", offset, f"a multiple of {alignment}")
    return Range(buffer, offset, size)


def resolve_resource(operator: str, field: str, binding: object, size: int, alignment: int, gpu: Gpu) -> Bound | None:
    """The same as `resolve`, for memory that several buffers of the package have parts of."""
    bound = resolve(operator, field, binding, size, alignment, gpu)
    return Range(bound.buffer, bound.offset, size) if bound and size else None


def of_array(operator: str, field: str, binding: object, count: int) -> Sequence[object]:
    """The bindings of a DML_BUFFER_ARRAY_BINDING; so many times None where it is empty or there is none.

    Raises InvalidArgumentError for what is no such binding, and for another number of them.
    """
    array = _inner(operator, field, binding, DML_BINDING_TYPE.BUFFER_ARRAY)
    if array is None:
        return [None] * count
    if not isinstance(array, DML_BUFFER_ARRAY_BINDING) or not isinstance(array.Bindings, list | tuple):
        raise InvalidArgumentError(operator, field, type(array).__name__, "a DML_BUFFER_ARRAY_BINDING of a list, or None")
    if not is_count(array.BindingCount, len(array.Bindings)) or len(array.Bindings) not in (0, count):
        found = f"{len(array.Bindings)} bindings (BindingCount {shown(array.BindingCount)})"
        raise InvalidArgumentError(operator, field, found, f"{count} or none")
    return array.Bindings or [None] * count


def _inner(operator: str, field: str, binding: object, allowed: DML_BINDING_TYPE) -> Any:
    """The content of a DML_BINDING_DESC, None if it binds nothing; anything else as it is."""
    if not isinstance(binding, DML_BINDING_DESC):
        return binding
    if is_one_of(binding.Type, [DML_BINDING_TYPE.NONE]):
        return None
    if not is_one_of(binding.Type, [allowed]):
        raise InvalidArgumentError(operator, f"{field}: Type", shown(binding.Type), f"{allowed.name} or NONE")
    return binding.Desc


def check_overlaps(problem: CheckedOperator, bound: Mapping[str, Bound], resources: Mapping[str, Bound]) -> None:
    """Refuse what is written where anything else is bound, but for outputs in place. resources: what kernels write beside the
    outputs, by name.
    """
    parts = {field: Range(memory.buffer, memory.offset, problem.tensor(field).size_in_bytes) for field, memory in bound.items()}
    parts |= {name: Range(memory.buffer, memory.offset, memory.size_in_bytes) for name, memory in resources.items()}
    for written in (name for name in (*problem.outputs, *resources) if name in parts):
        for field, part in parts.items():
            if field != written and overlap(part, parts[written]) and not (
                    field in problem.in_place.get(written, ()) and part.offset == parts[written].offset
                    and problem.tensor(field).strides == problem.tensor(written).strides):
                raise InvalidArgumentError(problem.operator, written, f"memory of {field} too", "memory of its own")
