"""DirectML's enumerations, and its structures of tensors and operators, spelled as in DirectML.h. They only hold data:
Device.create_operator checks it.

Where a C structure has a count beside a pointer, the count is optional here; if it is given, it must be right.
Sources: the DirectML reference page of each structure (DML_GRU_OPERATOR_DESC, DML_BUFFER_TENSOR_DESC, ...); DirectML.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any

from .fields import Structure

DML_TENSOR_DATA_TYPE = IntEnum("DML_TENSOR_DATA_TYPE", [
    "UNKNOWN", "FLOAT32", "FLOAT16", "UINT32", "UINT16", "UINT8", "INT32", "INT16", "INT8", "FLOAT64", "UINT64", "INT64"],
    start=0)
DML_TENSOR_TYPE = IntEnum("DML_TENSOR_TYPE", ["INVALID", "BUFFER"], start=0)
DML_TENSOR_FLAGS = IntFlag("DML_TENSOR_FLAGS", {"NONE": 0, "OWNED_BY_DML": 1})
DML_RECURRENT_NETWORK_DIRECTION = IntEnum("DML_RECURRENT_NETWORK_DIRECTION", ["FORWARD", "BACKWARD", "BIDIRECTIONAL"], start=0)
DML_EXECUTION_FLAGS = IntFlag("DML_EXECUTION_FLAGS", {
    "NONE": 0, "ALLOW_HALF_PRECISION_COMPUTATION": 1, "DISABLE_META_COMMANDS": 2, "DESCRIPTORS_VOLATILE": 4})
DML_MATRIX_TRANSFORM = IntEnum("DML_MATRIX_TRANSFORM", ["NONE", "TRANSPOSE"], start=0)
# The operators that vkdml has, and all activations. HARDMAX, LOG_SOFTMAX, SOFTMAX and PARAMETERIZED_RELU are refused: they are
# no elementwise functions of one tensor.
DML_OPERATOR_TYPE = IntEnum("DML_OPERATOR_TYPE", {
    "INVALID": 0, "ELEMENT_WISE_IDENTITY": 1, "ELEMENT_WISE_ADD": 4, "ELEMENT_WISE_MULTIPLY": 24, "ELEMENT_WISE_SUBTRACT": 30,
    "ACTIVATION_ELU": 35, "ACTIVATION_HARDMAX": 36, "ACTIVATION_HARD_SIGMOID": 37, "ACTIVATION_IDENTITY": 38,
    "ACTIVATION_LEAKY_RELU": 39, "ACTIVATION_LINEAR": 40, "ACTIVATION_LOG_SOFTMAX": 41, "ACTIVATION_PARAMETERIZED_RELU": 42,
    "ACTIVATION_PARAMETRIC_SOFTPLUS": 43, "ACTIVATION_RELU": 44, "ACTIVATION_SCALED_ELU": 45, "ACTIVATION_SCALED_TANH": 46,
    "ACTIVATION_SIGMOID": 47, "ACTIVATION_SOFTMAX": 48, "ACTIVATION_SOFTPLUS": 49, "ACTIVATION_SOFTSIGN": 50,
    "ACTIVATION_TANH": 51, "ACTIVATION_THRESHOLDED_RELU": 52, "GEMM": 54, "SLICE": 60, "JOIN": 63, "GATHER": 67, "RNN": 76,
    "LSTM": 77, "GRU": 78, "ELEMENT_WISE_ADD1": 89, "ACTIVATION_SHRINK": 90, "SLICE1": 111, "ACTIVATION_CELU": 128,
    "ACTIVATION_GELU": 157, "ACTIVATION_SWISH": 167, "ACTIVATION_HARD_SWISH": 168})


class DML_BUFFER_TENSOR_DESC(Structure, kw_only=True):
    """A tensor in a buffer. Give its fields by name: in C they have another order.

    Sizes and Strides count elements; None for Strides is a packed tensor. TotalTensorSizeInBytes defaults to the smallest
    size that holds the tensor, rounded up to 4 bytes.
    """

    DataType: DML_TENSOR_DATA_TYPE
    Sizes: Sequence[int]
    Strides: Sequence[int] | None = None
    Flags: DML_TENSOR_FLAGS = DML_TENSOR_FLAGS.NONE
    TotalTensorSizeInBytes: int | None = None
    GuaranteedBaseOffsetAlignment: int = 0
    DimensionCount: int | None = None


class DML_TENSOR_DESC(Structure):
    """A tensor description with its type. Wherever one is expected, a DML_BUFFER_TENSOR_DESC alone is accepted too."""

    Type: DML_TENSOR_TYPE
    Desc: DML_BUFFER_TENSOR_DESC


TensorDesc = DML_TENSOR_DESC | DML_BUFFER_TENSOR_DESC
SignedNumbers = Sequence[int]  # its numbers may be negative; those of other lists may not


class DML_OPERATOR_DESC(Structure):
    """An operator description with its type. Wherever one is expected, the structure in `Desc` alone is accepted too."""

    Type: DML_OPERATOR_TYPE
    Desc: Any


class DML_BINDING_PROPERTIES(Structure):
    """How many descriptors an operator or its initializer binds, and bytes of its temporary and persistent resources."""

    RequiredDescriptorCount: int
    TemporaryResourceSize: int
    PersistentResourceSize: int


class ActivationDesc(Structure):
    """The fields that all DML_ACTIVATION_*_OPERATOR_DESC begin with.

    In an operator of its own, both are tensors of the same sizes and type: 1 to 8 dimensions, FLOAT32 or FLOAT16. They may be
    bound to the same buffer if they have the same strides. In a recurrent operator's ActivationDescs, both are None.
    """

    InputTensor: TensorDesc | None = None
    OutputTensor: TensorDesc | None = None


class DML_ACTIVATION_ELU_OPERATOR_DESC(ActivationDesc):
    """f(x) = x where x >= 0, else Alpha * (exp(x) - 1)."""

    Alpha: float = 1.0


class DML_ACTIVATION_CELU_OPERATOR_DESC(ActivationDesc):
    """f(x) = x where x >= 0, else Alpha * (exp(x / Alpha) - 1). Alpha must not be 0."""

    Alpha: float = 1.0


class DML_ACTIVATION_HARD_SIGMOID_OPERATOR_DESC(ActivationDesc):
    """f(x) = max(0, min(Alpha * x + Beta, 1))."""

    Alpha: float = 0.2
    Beta: float = 0.5


class DML_ACTIVATION_IDENTITY_OPERATOR_DESC(ActivationDesc):
    """f(x) = x."""


class DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC(ActivationDesc):
    """f(x) = x where x >= 0, else Alpha * x."""

    Alpha: float = 0.01


class DML_ACTIVATION_LINEAR_OPERATOR_DESC(ActivationDesc):
    """f(x) = Alpha * x + Beta."""

    Alpha: float = 1.0
    Beta: float = 0.0


class DML_ACTIVATION_PARAMETRIC_SOFTPLUS_OPERATOR_DESC(ActivationDesc):
    """f(x) = Alpha * log(1 + exp(Beta * x))."""

    Alpha: float = 1.0
    Beta: float = 1.0


class DML_ACTIVATION_RELU_OPERATOR_DESC(ActivationDesc):
    """f(x) = max(0, x)."""


class DML_ACTIVATION_SCALED_ELU_OPERATOR_DESC(ActivationDesc):
    """f(x) = Gamma * x where x >= 0, else Gamma * Alpha * (exp(x) - 1)."""

    Alpha: float = 1.67326319217681884765625
    Gamma: float = 1.05070102214813232421875


class DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC(ActivationDesc):
    """f(x) = Alpha * tanh(Beta * x)."""

    Alpha: float = 1.0
    Beta: float = 0.5


class DML_ACTIVATION_SHRINK_OPERATOR_DESC(ActivationDesc):
    """f(x) = x + Bias where x < -Threshold, else x - Bias where x > Threshold, else 0."""

    Bias: float = 0.0
    Threshold: float = 0.5


class DML_ACTIVATION_SIGMOID_OPERATOR_DESC(ActivationDesc):
    """f(x) = 1 / (1 + exp(-x))."""


class DML_ACTIVATION_SOFTPLUS_OPERATOR_DESC(ActivationDesc):
    """f(x) = log(1 + exp(Steepness * x)) / Steepness. Steepness must not be 0."""

    Steepness: float = 1.0


class DML_ACTIVATION_SOFTSIGN_OPERATOR_DESC(ActivationDesc):
    """f(x) = `x / (1 + |x|)`."""


class DML_ACTIVATION_TANH_OPERATOR_DESC(ActivationDesc):
    """f(x) = tanh(x)."""


class DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC(ActivationDesc):
    """f(x) = x where x > Alpha, else 0."""

    Alpha: float = 1.0


class DML_ACTIVATION_GELU_OPERATOR_DESC(ActivationDesc):
    """f(x) = 0.5 * x * (1 + erf(x / sqrt(2)))."""


class DML_ACTIVATION_SWISH_OPERATOR_DESC(ActivationDesc):
    """f(x) = x / (1 + exp(-SigmoidInputScale * x))."""

    SigmoidInputScale: float = 1.0


class DML_ACTIVATION_HARD_SWISH_OPERATOR_DESC(ActivationDesc):
    """f(x) = x * max(0, min(Alpha * x + Beta, 1))."""

    Alpha: float = 1 / 6
    Beta: float = 0.5


class _RecurrentDesc(Structure, kw_only=True):
    """The fields that all recurrent operators have."""

    InputTensor: TensorDesc
    WeightTensor: TensorDesc
    RecurrenceTensor: TensorDesc
    ActivationDescs: Sequence[DML_OPERATOR_DESC | ActivationDesc]
    BiasTensor: TensorDesc | None = None
    HiddenInitTensor: TensorDesc | None = None
    SequenceLengthsTensor: TensorDesc | None = None
    OutputSequenceTensor: TensorDesc | None = None
    OutputSingleTensor: TensorDesc | None = None
    Direction: DML_RECURRENT_NETWORK_DIRECTION = DML_RECURRENT_NETWORK_DIRECTION.FORWARD
    ActivationDescCount: int | None = field(default=None, compare=False)


class DML_GRU_OPERATOR_DESC(_RecurrentDesc, kw_only=True):
    """A one-layer gated recurrent unit (DML_OPERATOR_GRU), gates in the order z r h.

    Sizes, with T time steps, B batch rows, I inputs, H hidden units and D directions (2 if bidirectional, else 1); all tensors
    are FLOAT32, or all are FLOAT16, except for the lengths:

    InputTensor {1, T, B, I}, WeightTensor {1, D, 3H, I}, RecurrenceTensor {1, D, 3H, H}, and the optional
    BiasTensor {1, 1, D, 6H}, HiddenInitTensor {1, D, B, H}, SequenceLengthsTensor {1, 1, 1, B} UINT32,
    OutputSequenceTensor {T, D, B, H}, OutputSingleTensor {1, D, B, H}; at least one output.
    ActivationDescs: f and g for each direction, the forward one first. LinearBeforeReset: whether the candidate's recurrent
    part is computed before the reset gate is applied.
    """

    LinearBeforeReset: bool = False


class DML_LSTM_OPERATOR_DESC(_RecurrentDesc, kw_only=True):
    """A one-layer long short-term memory (DML_OPERATOR_LSTM), gates in the order i o f c. Letters and types are the GRU's.

    InputTensor {1, T, B, I}, WeightTensor {1, D, 4H, I}, RecurrenceTensor {1, D, 4H, H}, and the optional
    BiasTensor {1, 1, D, 8H}, HiddenInitTensor and CellMemInitTensor {1, D, B, H}, SequenceLengthsTensor {1, 1, 1, B}
    UINT32, PeepholeTensor {1, 1, D, 3H} (i o f), OutputSequenceTensor {T, D, B, H}, OutputSingleTensor and
    OutputCellSingleTensor {1, D, B, H}; at least one output.
    ActivationDescs: f, g and h for each direction, the forward one first. If UseClipThreshold is set, the inputs of f and g are
    clipped to -ClipThreshold ... ClipThreshold. CoupleInputForget: the forget gate is 1 - the input gate.
    """

    CellMemInitTensor: TensorDesc | None = None
    PeepholeTensor: TensorDesc | None = None
    OutputCellSingleTensor: TensorDesc | None = None
    ClipThreshold: float = 0.0
    UseClipThreshold: bool = False
    CoupleInputForget: bool = False


class DML_RNN_OPERATOR_DESC(_RecurrentDesc):
    """A one-layer simple recurrent network (DML_OPERATOR_RNN). Letters and types are the GRU's.

    InputTensor {1, T, B, I}, WeightTensor {1, D, H, I}, RecurrenceTensor {1, D, H, H}, and the optional
    BiasTensor {1, 1, D, 2H}, HiddenInitTensor {1, D, B, H}, SequenceLengthsTensor {1, 1, 1, B} UINT32,
    OutputSequenceTensor {T, D, B, H}, OutputSingleTensor {1, D, B, H}; at least one output.
    ActivationDescs: f for each direction, the forward one first.
    """


# The plain operators: those without a time loop, which stand around a recurrent layer

class DML_SCALE_BIAS(Structure):
    """Scales an elementwise operator's input x to x * Scale + Bias."""

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
    """Concatenates the inputs along Axis (DML_OPERATOR_JOIN).

    All tensors have the same type, which may be any, and the same sizes except along Axis, where they add up to the output's;
    1 to 8 dimensions.
    """

    InputCount: int | None = field(default=None, compare=False)
    InputTensors: Sequence[TensorDesc]
    OutputTensor: TensorDesc
    Axis: int


class DML_SLICE_OPERATOR_DESC(Structure, kw_only=True):
    """Copies the elements Offset, Offset + Stride, ... of each dimension of the input (DML_OPERATOR_SLICE).

    Sizes are those of the output. Both tensors have the same type, any, and 1 to 8 dimensions; Strides are 1 or more.
    """

    InputTensor: TensorDesc
    OutputTensor: TensorDesc
    DimensionCount: int | None = field(default=None, compare=False)
    Offsets: Sequence[int]
    Sizes: Sequence[int]
    Strides: Sequence[int]


class DML_SLICE1_OPERATOR_DESC(Structure, kw_only=True):
    """Copies every stride-th element of a window in each dimension of the input (DML_OPERATOR_SLICE1).

    A window is InputWindowSizes elements from InputWindowOffsets on. A negative stride begins at its last element and goes
    back. The output's sizes are at most `(window - 1) / |stride| + 1`, rounded down. Both tensors have the same type, any, and
    1 to 8 dimensions.
    """

    InputTensor: TensorDesc
    OutputTensor: TensorDesc
    DimensionCount: int | None = field(default=None, compare=False)
    InputWindowOffsets: Sequence[int]
    InputWindowSizes: Sequence[int]
    InputWindowStrides: SignedNumbers


class DML_GATHER_OPERATOR_DESC(Structure, kw_only=True):
    """Copies the elements of the input at the places along Axis that IndicesTensor gives (DML_OPERATOR_GATHER).

    The output's sizes are the input's before Axis, the last IndexDimensions of the indices', and the input's after Axis;
    leading sizes of 1 are left out or added, so that all tensors have the same number of dimensions, 1 to 8. Input and output
    have the same type, any; indices are UINT32, INT32, UINT64 or INT64, and negative ones count from the end.
    """

    InputTensor: TensorDesc
    IndicesTensor: TensorDesc
    OutputTensor: TensorDesc
    Axis: int
    IndexDimensions: int


NAMES = [name for name in dir() if name.startswith("DML_")]
if not TYPE_CHECKING:  # type checkers understand only literal lists in __all__, and find the names without it
    __all__ = NAMES
