"""DirectML's operator initializer, and its binding table, which assigns memory to an operator's tensors.

Source: DirectML's page "Binding in DirectML".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from ...engine.vulkan.buffers import Buffer
from ...engine.vulkan.gpu import Gpu
from ...engine.vulkan.memory import Bound, Range, overlap
from ...errors import InvalidArgumentError, check_type, shown
from ...operators.checks import CheckedOperator, integers, is_count, is_one_of
from ...operators.header import device_descs as header
from ...operators.header.descs import DML_BINDING_PROPERTIES
from ...planning.device_info import ALIGNMENT
from .compiled_operator import CompiledGraph, CompiledOperator, Named, part

Compiled = CompiledOperator | CompiledGraph
Method = TypeVar("Method", bound=Callable[..., Any])


def counted(method: Method) -> Method:
    """Decorate a method that takes a list, so that it also takes the list's length before it, as in DirectML."""
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
    """Packs those weights of compiled operators and graphs that are described as OWNED_BY_DML (IDMLOperatorInitializer).
    Device.create_operator_initializer makes it.

    operators: the operators to initialize. takes_arrays: whether they were given as a list.
    """

    def __init__(self, compiled: Compiled | Sequence[Compiled]) -> None:
        self._set("create_operator_initializer", compiled)

    @counted
    def reset(self, compiled: Compiled | Sequence[Compiled]) -> None:
        """Initialize other operators from now on (IDMLOperatorInitializer::Reset). Reset its binding tables too."""
        self._set("reset", compiled)

    def _set(self, call: str, compiled: Compiled | Sequence[Compiled]) -> None:
        self.takes_arrays = isinstance(compiled, list | tuple)
        operators: Any = compiled if self.takes_arrays else [compiled]
        for operator in operators:
            check_type(call, "compiled", operator, CompiledOperator, CompiledGraph)
        if len({operator.gpu for operator in operators}) != 1:
            raise InvalidArgumentError(call, "compiled", f"{len(operators)} operators", "one at least, all of one device")
        self.operators: list[Compiled] = list(operators)

    def _facts(self) -> str:
        return "of " + ", ".join(map(str, self.operators))

    def get_binding_properties(self) -> DML_BINDING_PROPERTIES:
        """Count the descriptors that an initialization binds. It needs no resources of its own."""
        return DML_BINDING_PROPERTIES(sum(operator.initializer_descriptors for operator in self.operators), 0, 0)


Dispatchable = Compiled | OperatorInitializer
DISPATCHABLES = (CompiledOperator, CompiledGraph, OperatorInitializer)


class OperatorBindings:
    """The bindings of one operator in a table, for an execution or for its initializer.

    bound: the tensors' memory, by field. persistent: the caller's resource for packed weights.
    """

    def __init__(self, compiled: Compiled, initializing: bool) -> None:
        self.compiled = compiled
        self._initializing = initializing
        self.bound: dict[str, Bound] = {}
        self.persistent: Bound | None = None

    def missing(self) -> list[str]:
        """The fields that must still be bound before the operator can be recorded."""
        fields = (*self.compiled.input_fields, *self.compiled.output_fields)
        return [field for field in fields if self._takes(field) and field not in self.bound]

    def _takes(self, field: str) -> bool:
        problem = self.compiled.problem
        return problem.has(field) and (field in problem.initialized) == self._initializing

    def bind(self, call: str, fields: Sequence[str], bindings: Sequence[object]) -> None:
        """Bind memory to each field; an empty list unbinds all."""
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
            found = shown(binding) if isinstance(binding, header.DML_BINDING_DESC) else type(binding).__name__
            raise InvalidArgumentError(operator, argument, found, f"a Buffer of {size} bytes or more")
        return memory

    def bind_persistent(self, call: str, binding: object) -> None:
        """Bind memory for the packed weights. call: the method's name in errors."""
        compiled, size = self.compiled, self.compiled.get_binding_properties().PersistentResourceSize
        self.persistent = part(resolve(compiled.problem.operator, call, binding, size, ALIGNMENT, compiled.gpu), size)


class BindingTable(Named):
    """Binds memory to the tensors of a compiled operator, or of an initializer's operators (IDMLBindingTable).
    Device.create_binding_table makes it.

    An initializer takes the OWNED_BY_DML tensors; an execution takes all others.

    A binding is a Buffer, or a part of one: DML_BUFFER_BINDING, whose offset is a multiple of 16, of the tensor's
    GuaranteedBaseOffsetAlignment, and of DeviceInfo.storage_buffer_alignment. A DML_BINDING_DESC around it is allowed.
    """

    def __init__(self, dispatchable: Dispatchable | header.DML_BINDING_TABLE_DESC) -> None:
        self.reset(dispatchable)

    def reset(self, dispatchable: Dispatchable | header.DML_BINDING_TABLE_DESC) -> None:
        """Unbind everything, and use the table for this dispatchable (IDMLBindingTable::Reset)."""
        structure = header.DML_BINDING_TABLE_DESC
        desc = dispatchable if isinstance(dispatchable, structure) else structure(dispatchable)
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

    def _facts(self) -> str:
        return f"of {self.dispatchable}"

    @counted
    def bind_inputs(self, bindings: Sequence[object]) -> None:
        """Bind the inputs, in the order of CompiledOperator.input_fields (IDMLBindingTable::BindInputs). An initializer of a
        list takes a DML_BUFFER_ARRAY_BINDING of such bindings for each operator.

        A binding is None where the descriptor has no tensor, and where this dispatchable takes none: OWNED_BY_DML tensors in an
        execution, all others in an initialization. An empty list unbinds all inputs.

        Raises InvalidArgumentError for memory that is missing, not taken here, too small, misaligned or of another device.
        """
        arrays = [bindings]
        if isinstance(self.dispatchable, OperatorInitializer) and self.dispatchable.takes_arrays:
            _check_count("OperatorInitializer", "bind_inputs", bindings, len(self.parts), "one for each operator")
            arrays = [_of_array(one.compiled, binding) for one, binding in zip(self.parts, bindings)] or [[]] * len(self.parts)
        for one, array in zip(self.parts, arrays):
            one.bind("bind_inputs", one.compiled.input_fields, array)

    @counted
    def bind_outputs(self, bindings: Sequence[object]) -> None:
        """Bind the outputs, in the order of CompiledOperator.output_fields (IDMLBindingTable::BindOutputs). An initializer's
        outputs are the operators' persistent resources; the package makes those that are None.

        A binding is None where the descriptor has no tensor. An empty list unbinds all outputs. Raises what bind_inputs raises.
        """
        if isinstance(self.dispatchable, OperatorInitializer):
            _check_count("OperatorInitializer", "bind_outputs", bindings, len(self.parts), "one for each operator")
            for one, binding in zip(self.parts, bindings or [None] * len(self.parts)):
                one.bind_persistent("bind_outputs", binding)
        else:
            self.parts[0].bind("bind_outputs", self.parts[0].compiled.output_fields, bindings)

    def bind_temporary_resource(self, binding: object) -> None:
        """Bind scratch memory of TemporaryResourceSize bytes (IDMLBindingTable::BindTemporaryResource), at a multiple of
        DML_TEMPORARY_BUFFER_ALIGNMENT. None: the package makes it.

        Use it for nothing else during an execution. Raises what bind_inputs raises.
        """
        operator, gpu = self.parts[0].compiled.problem.operator, self.parts[0].compiled.gpu
        size = self.dispatchable.get_binding_properties().TemporaryResourceSize
        self.temporary = part(resolve(operator, "bind_temporary_resource", binding, size, ALIGNMENT, gpu), size)

    def bind_persistent_resource(self, binding: object) -> None:
        """Bind memory of PersistentResourceSize bytes for packed weights (IDMLBindingTable::BindPersistentResource), at a
        multiple of DML_PERSISTENT_BUFFER_ALIGNMENT. An initializer, or else executions, fill it. None: the package makes it.

        Do not write to it: an execution then packs the weights again, or refuses to run if they are OWNED_BY_DML. Raises what
        bind_inputs raises, and InvalidArgumentError for an initializer, whose outputs are the persistent resources.
        """
        if isinstance(self.dispatchable, OperatorInitializer) and binding is not None:
            raise InvalidArgumentError("OperatorInitializer", "bind_persistent_resource", type(binding).__name__,
                                       "None: the operators' persistent resources are its outputs")
        self.parts[0].bind_persistent("bind_persistent_resource", binding)


def _check_count(operator: str, call: str, bindings: object, count: int, which: str) -> None:
    """Refuse anything but a list of `count` bindings, or an empty one. which: names the bindings in errors."""
    if not isinstance(bindings, Sequence) or len(bindings) not in (0, count):
        found = f"{len(bindings)} bindings" if isinstance(bindings, Sequence) else type(bindings).__name__
        raise InvalidArgumentError(operator, call, found, f"{count}: {which}")


def resolve(operator: str, field: str, binding: object, size: int, alignment: int, gpu: Gpu) -> Bound | None:
    """Return the memory of a binding, of at least `size` bytes, at a multiple of both alignments: the given one and the
    device's. None: it binds nothing.

    Raises InvalidArgumentError for a wrong type, and memory too small, misaligned, outside of its buffer or of another device.
    """
    given = _inner(operator, field, binding, header.DML_BINDING_TYPE.BUFFER)
    if given is None or (isinstance(given, header.DML_BUFFER_BINDING) and given.Buffer is None):
        return None
    inner = header.DML_BUFFER_BINDING(given) if isinstance(given, Buffer) else given
    if not isinstance(inner, header.DML_BUFFER_BINDING) or not isinstance(inner.Buffer, Buffer):
        found = inner.Buffer if isinstance(inner, header.DML_BUFFER_BINDING) else inner
        raise InvalidArgumentError(operator, field, type(found).__name__, f"a Buffer of {size} bytes or more")
    buffer: Buffer = inner.Buffer
    if buffer.gpu is not gpu:
        raise InvalidArgumentError(operator, field, f"a buffer of {buffer.gpu.info.name}", "a buffer of the operator's device")
    buffer._expect_open()
    (offset,) = integers(operator, f"{field}: Offset", (inner.Offset,), 0)
    room = buffer.size_in_bytes - offset
    given_size = room if inner.SizeInBytes is None else integers(operator, f"{field}: SizeInBytes", (inner.SizeInBytes,), 0)[0]
    if not 0 <= given_size <= room:
        raise InvalidArgumentError(operator, field, f"{max(given_size, 0)} bytes from {offset} on",
                                   f"a part of the buffer's {buffer.size_in_bytes} bytes")
    if given_size < size:
        raise InvalidArgumentError(operator, field, f"{given_size} bytes", f"{size} bytes or more")
    if isinstance(given, Buffer):
        return given
    alignment = max(alignment, gpu.info.storage_buffer_alignment)
    if offset % alignment:
        raise InvalidArgumentError(operator, f"{field}: Offset", offset, f"a multiple of {alignment}")
    return Range(buffer, offset, size)


def _of_array(compiled: Compiled, binding: object) -> Sequence[object]:
    """The bindings of a DML_BUFFER_ARRAY_BINDING for each of an operator's inputs; all are None if it is empty or None.

    Raises InvalidArgumentError for another binding, or a wrong number of them.
    """
    operator, count = compiled.problem.operator, len(compiled.input_fields)
    array = _inner(operator, "bind_inputs", binding, header.DML_BINDING_TYPE.BUFFER_ARRAY)
    if array is None:
        return [None] * count
    if not isinstance(array, header.DML_BUFFER_ARRAY_BINDING) or not isinstance(array.Bindings, list | tuple):
        expected = "a DML_BUFFER_ARRAY_BINDING of a list, or None"
        raise InvalidArgumentError(operator, "bind_inputs", type(array).__name__, expected)
    if not is_count(array.BindingCount, len(array.Bindings)) or len(array.Bindings) not in (0, count):
        found = f"{len(array.Bindings)} bindings (BindingCount {shown(array.BindingCount)})"
        raise InvalidArgumentError(operator, "bind_inputs", found, f"{count} or none")
    return array.Bindings or [None] * count


def _inner(operator: str, field: str, binding: object, allowed: header.DML_BINDING_TYPE) -> Any:
    """Unwrap a DML_BINDING_DESC: return its content, or None if it binds nothing. Return anything else unchanged."""
    if not isinstance(binding, header.DML_BINDING_DESC):
        return binding
    if is_one_of(binding.Type, [header.DML_BINDING_TYPE.NONE]):
        return None
    if not is_one_of(binding.Type, [allowed]):
        raise InvalidArgumentError(operator, f"{field}: Type", shown(binding.Type), f"{allowed.name} or NONE")
    return binding.Desc


def check_overlaps(problem: CheckedOperator, bound: Mapping[str, Bound], resources: Mapping[str, Bound]) -> None:
    """Refuse outputs and resources that overlap other bound memory, except for outputs that may be in place of an input.

    resources: memory that kernels write, by its name in errors.
    """
    parts = {field: Range(memory.buffer, memory.offset, problem.tensor(field).size_in_bytes) for field, memory in bound.items()}
    parts |= {name: Range(memory.buffer, memory.offset, memory.size_in_bytes) for name, memory in resources.items()}
    for written in (name for name in (*problem.outputs, *resources) if name in parts):
        for field, place in parts.items():
            if field != written and overlap(place, parts[written]) and not (
                    field in problem.in_place.get(written, ()) and place.offset == parts[written].offset
                    and problem.tensor(field).strides == problem.tensor(written).strides):
                raise InvalidArgumentError(problem.operator, written, f"memory of {field} too", "memory of its own")
