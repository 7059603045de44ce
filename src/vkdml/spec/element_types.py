"""One table: a row for each type that the tensors of an operator may have. Lengths apart, all of an operator's share one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from .descs import DML_TENSOR_DATA_TYPE


@dataclass(frozen=True)
class ElementType:
    """A row.

    name: numpy's (of bfloat16: the one of the package ml_dtypes). data_type: DirectML's. in_directml: whether DirectML's
    recurrent and activation operators take it. onnx_since: the operator version of ONNX that brought it in. shader_id:
    what shaders/lib/elements.glsl calls it. pairs: computed in pairs of float32 numbers instead of single ones.
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
        """Groups of 4 weights that a kernel loads at once (shaders/lib/weights.glsl)."""
        return 2 if self.itemsize == 2 else 1

    @property
    def columns_per_load(self) -> int:
        """Weights of a row in such a load."""
        return 4 * self.vecs_per_load

    @property
    def real4_bytes(self) -> int:
        """Bytes of 4 numbers as they are computed and carried (shaders/lib/real.glsl)."""
        return 32 if self.pairs else 16


_D = DML_TENSOR_DATA_TYPE
FLOAT32 = ElementType("float32", _D.FLOAT32, 4, in_directml=True, onnx_since=1)
FLOAT16 = ElementType("float16", _D.FLOAT16, 2, in_directml=True, onnx_since=1, shader_id=1)
BFLOAT16 = ElementType("bfloat16", _D.UNKNOWN, 2, in_directml=False, onnx_since=22, shader_id=2)
FLOAT64 = ElementType("float64", _D.FLOAT64, 8, in_directml=False, onnx_since=1, shader_id=3, pairs=True)

ALL = (FLOAT32, FLOAT16, BFLOAT16, FLOAT64)
IN_DIRECTML = tuple(element for element in ALL if element.in_directml)


@cache
def of(dtype: Any) -> ElementType | None:
    """The row of a numpy dtype, or None."""
    return next((element for element in ALL if element.name == getattr(dtype, "name", None)), None)
