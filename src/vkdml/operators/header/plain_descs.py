"""DirectML's structures of the plain operators: those without a time loop, which stand around a recurrent layer.

As in descs.py, they only hold data, and counts beside pointers are optional. Fields are given by name.
Sources: the DirectML reference page of each structure; DirectML.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum

from .descs import DML_OPERATOR_DESC, ActivationDesc, TensorDesc
from .fields import Structure

__all__ = [
    "DML_ELEMENT_WISE_ADD1_OPERATOR_DESC", "DML_ELEMENT_WISE_ADD_OPERATOR_DESC", "DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC",
    "DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC", "DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC", "DML_GATHER_OPERATOR_DESC",
    "DML_GEMM_OPERATOR_DESC", "DML_JOIN_OPERATOR_DESC", "DML_MATRIX_TRANSFORM", "DML_SCALE_BIAS",
    "DML_SLICE1_OPERATOR_DESC", "DML_SLICE_OPERATOR_DESC"]

SignedNumbers = Sequence[int]


class DML_MATRIX_TRANSFORM(IntEnum):
    NONE = 0
    TRANSPOSE = 1


class DML_SCALE_BIAS(Structure):
    """x * Scale + Bias, of an elementwise operator's input."""

    Scale: float
    Bias: float


class DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC(Structure, kw_only=True):
    """OutputTensor = InputTensor, or x * Scale + Bias of its elements (DML_OPERATOR_ELEMENT_WISE_IDENTITY).

    Both tensors have the same sizes, 1 to 8 dimensions, and the same type: any, or FLOAT32 or FLOAT16 with ScaleBias. They may
    be bound to one buffer if they have the same strides.
    """

    InputTensor: TensorDesc
    OutputTensor: TensorDesc
    ScaleBias: DML_SCALE_BIAS | None = None


class _BinaryDesc(Structure, kw_only=True):
    """The fields of operators on the elements of two tensors.

    All three tensors have the same sizes, 1 to 8 dimensions, and the same type, FLOAT32 or FLOAT16. Strides of 0 broadcast an
    input. The output may be bound to the buffer of an input with the same strides.
    """

    ATensor: TensorDesc
    BTensor: TensorDesc
    OutputTensor: TensorDesc


class DML_ELEMENT_WISE_ADD_OPERATOR_DESC(_BinaryDesc):
    """OutputTensor = ATensor + BTensor (DML_OPERATOR_ELEMENT_WISE_ADD)."""


class DML_ELEMENT_WISE_ADD1_OPERATOR_DESC(_BinaryDesc, kw_only=True):
    """OutputTensor = FusedActivation(ATensor + BTensor) (DML_OPERATOR_ELEMENT_WISE_ADD1)."""

    FusedActivation: DML_OPERATOR_DESC | ActivationDesc | None = None


class DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC(_BinaryDesc):
    """OutputTensor = ATensor * BTensor (DML_OPERATOR_ELEMENT_WISE_MULTIPLY)."""


class DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC(_BinaryDesc):
    """OutputTensor = ATensor - BTensor (DML_OPERATOR_ELEMENT_WISE_SUBTRACT)."""


class DML_GEMM_OPERATOR_DESC(Structure, kw_only=True):
    """OutputTensor = FusedActivation(Alpha * TransA(ATensor) x TransB(BTensor) + Beta * CTensor) (DML_OPERATOR_GEMM).

    Sizes, after the transforms: ATensor {..., M, K}, BTensor {..., K, N}, OutputTensor and the optional CTensor {..., M, N}; 2
    to 4 dimensions, of which all but the last two are the same in all tensors. All are FLOAT32, or all are FLOAT16. Strides of
    0 broadcast an input, such as a bias in CTensor. The output needs a buffer of its own, but may have CTensor's where the
    strides are the same.
    """

    ATensor: TensorDesc
    BTensor: TensorDesc
    CTensor: TensorDesc | None = None
    OutputTensor: TensorDesc
    TransA: DML_MATRIX_TRANSFORM = DML_MATRIX_TRANSFORM.NONE
    TransB: DML_MATRIX_TRANSFORM = DML_MATRIX_TRANSFORM.NONE
    Alpha: float = 1.0
    Beta: float = 1.0
    FusedActivation: DML_OPERATOR_DESC | ActivationDesc | None = None


class DML_JOIN_OPERATOR_DESC(Structure, kw_only=True):
    """The inputs one behind the other along Axis (DML_OPERATOR_JOIN).

    All tensors have the same type, any, and the same sizes but for those of Axis, which add up to the output's; 1 to 8
    dimensions.
    """

    InputCount: int | None = field(default=None, compare=False)
    InputTensors: Sequence[TensorDesc]
    OutputTensor: TensorDesc
    Axis: int


class DML_SLICE_OPERATOR_DESC(Structure, kw_only=True):
    """The elements Offset, Offset + Stride, ... of each dimension of the input (DML_OPERATOR_SLICE).

    Sizes are those of the output. Both tensors have the same type, any, and 1 to 8 dimensions; Strides are 1 or more.
    """

    InputTensor: TensorDesc
    OutputTensor: TensorDesc
    DimensionCount: int | None = field(default=None, compare=False)
    Offsets: Sequence[int]
    Sizes: Sequence[int]
    Strides: Sequence[int]


class DML_SLICE1_OPERATOR_DESC(Structure, kw_only=True):
    """Every stride-th element of a window in each dimension of the input (DML_OPERATOR_SLICE1).

    A window is InputWindowSizes elements from InputWindowOffsets on. A negative stride begins at its last element and goes
    back. The output's sizes are at most (window - 1) / |stride| + 1, rounded down. Both tensors have the same type, any, and
    1 to 8 dimensions.
    """

    InputTensor: TensorDesc
    OutputTensor: TensorDesc
    DimensionCount: int | None = field(default=None, compare=False)
    InputWindowOffsets: Sequence[int]
    InputWindowSizes: Sequence[int]
    InputWindowStrides: SignedNumbers


class DML_GATHER_OPERATOR_DESC(Structure, kw_only=True):
    """The elements of the input at places along Axis that IndicesTensor says (DML_OPERATOR_GATHER).

    The output's sizes are the input's before Axis, the last IndexDimensions of the indices', and the input's after Axis;
    leading sizes of 1 are left out or added, so that all tensors have the same number of dimensions, 1 to 8. Input and output
    have the same type, any; indices are UINT32, INT32, UINT64 or INT64, and negative ones count from the end.
    """

    InputTensor: TensorDesc
    IndicesTensor: TensorDesc
    OutputTensor: TensorDesc
    Axis: int
    IndexDimensions: int
