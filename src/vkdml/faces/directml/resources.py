"""Turns a caller's bindings into the memory that kernels are given, and refuses overlaps.

Source: DirectML's page "Binding in DirectML".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.vulkan.buffers import Bound, Buffer, Range, overlap
from ...engine.vulkan.gpu import Gpu
from ...errors import InvalidArgumentError, shown
from ...operators.checks import CheckedOperator, integers, is_count, is_one_of
from ...operators.header.device_descs import DML_BINDING_DESC, DML_BINDING_TYPE, DML_BUFFER_ARRAY_BINDING, DML_BUFFER_BINDING


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
