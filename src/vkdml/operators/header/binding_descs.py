"""How DirectML.h binds memory to tensors: structures that only hold data. A BindingTable checks them.

Sources: DirectML's pages "Binding in DirectML" and those of the structures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..fields import tell_fields

__all__ = ["DML_BINDING_DESC", "DML_BINDING_TYPE", "DML_BUFFER_ARRAY_BINDING", "DML_BUFFER_BINDING"]


class DML_BINDING_TYPE(IntEnum):
    NONE = 0
    BUFFER = 1
    BUFFER_ARRAY = 2


@dataclass(frozen=True)
class DML_BUFFER_BINDING:
    """A part of a Buffer, in bytes; None binds nothing. Wherever one is expected, a Buffer alone is accepted too.

    SizeInBytes: by default to the buffer's end. Of that, a tensor has as many bytes as it is described with.
    """

    Buffer: Any
    Offset: int = 0
    SizeInBytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class DML_BUFFER_ARRAY_BINDING:
    """The bindings of all inputs of one operator, for an initializer of several."""

    Bindings: Sequence[Any]
    BindingCount: int | None = None


@dataclass(frozen=True)
class DML_BINDING_DESC:
    """A binding with its type. Wherever one is expected, what is in `Desc` is accepted alone, and None for no binding."""

    Type: DML_BINDING_TYPE
    Desc: Any = None


tell_fields(globals())
