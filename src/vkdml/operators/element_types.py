"""A table of the element types that operators compute in. All tensors of an operator share one, except lengths and indices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .header.descs import DML_TENSOR_DATA_TYPE


@dataclass(frozen=True)
class ElementType:
    """An element type that operators compute in: a row of the table.

    name: numpy's name of the dtype; bfloat16 is a dtype of the package ml_dtypes.
    data_type: DirectML's type; UNKNOWN if it has none.
    itemsize: bytes of an element.
    in_directml: whether DirectML's operators compute in it.
    onnx_since: the first version of ONNX's recurrent operators that takes it.
    shader_id: its number in the shaders; the build writes these into shaders/common/numbers.glsl.
    pairs: whether the shaders compute in pairs of float32 numbers instead of single ones.
    """

    name: str
    data_type: DML_TENSOR_DATA_TYPE
    itemsize: int
    in_directml: bool
    onnx_since: int
    shader_id: int = 0
    pairs: bool = False

    @property
    def vecs_per_load(self) -> int:
        """How many vectors of 4 weights a kernel loads at once: those in 16 bytes, or in 32 bytes of float64."""
        return 2 if self.itemsize == 2 else 1

    @property
    def columns_per_load(self) -> int:
        """How many columns of the weight matrix one load covers."""
        return 4 * self.vecs_per_load

    @property
    def real4_bytes(self) -> int:
        """Bytes that 4 numbers take in the shaders' arithmetic and state: 16 as float32, 32 as pairs of float32."""
        return 32 if self.pairs else 16


_D = DML_TENSOR_DATA_TYPE
FLOAT32 = ElementType("float32", _D.FLOAT32, 4, in_directml=True, onnx_since=1)
FLOAT16 = ElementType("float16", _D.FLOAT16, 2, in_directml=True, onnx_since=1, shader_id=1)
BFLOAT16 = ElementType("bfloat16", _D.UNKNOWN, 2, in_directml=False, onnx_since=22, shader_id=2)
FLOAT64 = ElementType("float64", _D.FLOAT64, 8, in_directml=False, onnx_since=1, shader_id=3, pairs=True)

ALL = (FLOAT32, FLOAT16, BFLOAT16, FLOAT64)
SINGLE = tuple(element for element in ALL if not element.pairs)
IN_DIRECTML = tuple(element for element in ALL if element.in_directml)


# How many bytes an element of each DirectML type has. The types have numpy's names, in capitals
ITEMSIZES: dict[DML_TENSOR_DATA_TYPE, int] = {
    data_type: np.dtype(data_type.name.lower()).itemsize for data_type in _D if data_type != _D.UNKNOWN}


def any_of(data_type: DML_TENSOR_DATA_TYPE) -> ElementType:
    """Make an ElementType for elements that are only copied. Shaders do not compute with them, so shader_id is unused."""
    return ElementType(data_type.name.lower(), data_type, ITEMSIZES[data_type], in_directml=True, onnx_since=1)


@cache
def of(dtype: Any) -> ElementType | None:
    """Look up a numpy dtype in the table; None if operators do not compute in it."""
    return next((element for element in ALL if element.name == getattr(dtype, "name", None)), None)
