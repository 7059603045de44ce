"""The types of an operator's tensors: one table, a row for each that is computed in. All tensors of an operator but lengths and
indices share one type.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .header.descs import DML_TENSOR_DATA_TYPE


@dataclass(frozen=True)
class ElementType:
    """A row of the table.

    name: numpy's name of the dtype; bfloat16 is a dtype of the package ml_dtypes.
    data_type: DirectML's; UNKNOWN where it has none.
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
        """Vectors of 4 weights that a kernel loads at once: 16 bytes, and 32 of float64."""
        return 2 if self.itemsize == 2 else 1

    @property
    def columns_per_load(self) -> int:
        """Columns of the weight matrix in one load."""
        return 4 * self.vecs_per_load

    @property
    def real4_bytes(self) -> int:
        """Bytes of 4 numbers in the form in which the shaders compute them and keep the state."""
        return 32 if self.pairs else 16


_D = DML_TENSOR_DATA_TYPE
FLOAT32 = ElementType("float32", _D.FLOAT32, 4, in_directml=True, onnx_since=1)
FLOAT16 = ElementType("float16", _D.FLOAT16, 2, in_directml=True, onnx_since=1, shader_id=1)
BFLOAT16 = ElementType("bfloat16", _D.UNKNOWN, 2, in_directml=False, onnx_since=22, shader_id=2)
FLOAT64 = ElementType("float64", _D.FLOAT64, 8, in_directml=False, onnx_since=1, shader_id=3, pairs=True)

ALL = (FLOAT32, FLOAT16, BFLOAT16, FLOAT64)
SINGLE = tuple(element for element in ALL if not element.pairs)
IN_DIRECTML = tuple(element for element in ALL if element.in_directml)


# Bytes of an element of each of DirectML's types; their names are numpy's
ITEMSIZES: dict[DML_TENSOR_DATA_TYPE, int] = {
    data_type: np.dtype(data_type.name.lower()).itemsize for data_type in _D if data_type != _D.UNKNOWN}


def any_of(data_type: DML_TENSOR_DATA_TYPE) -> ElementType:
    """The type of elements that are only copied. They are no numbers to the shaders, so it has no shader_id of its own."""
    return ElementType(data_type.name.lower(), data_type, ITEMSIZES[data_type], in_directml=True, onnx_since=1)


@cache
def of(dtype: Any) -> ElementType | None:
    """The row of a numpy dtype, or None."""
    return next((element for element in ALL if element.name == getattr(dtype, "name", None)), None)
