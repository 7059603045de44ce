"""The part of PyDirectML that recurrent networks need: `import vkdml.pydirectml as dml` instead of `import pydirectml as dml`.

It has PyDirectML's gru, gemm, add, subtract, multiply, join, slice and gather and, beyond PyDirectML, lstm, rnn, identity and
all activations. Wrong arguments raise InvalidArgumentError, which names the argument or the field of the operator's structure.
docs/faces/pydirectml.md has whole scripts. Sources: Python/src/module.cpp and Libraries/DirectMLX.h of microsoft/DirectML.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from ...errors import InvalidArgumentError, check_list, check_type
from ...operators import activations, cells
from ...operators.checks import check_index, evaluate
from ...operators.copy_problem import output_sizes, window_of
from ...operators.header import descs
from ...operators.plain_problem import OUTPUT
from .expression_graphs import (
    Binding,
    Device,
    Dimensions,
    Expression,
    GraphBuilder,
    Model,
    TensorData,
    TensorDesc,
    TensorPolicy,
)

__all__ = ["Binding", "Device", "Dimensions", "ExecutionFlags", "Expression", "FusedActivation", "GRUOutputs", "GraphBuilder",
           "LSTMOutputs", "MatrixTransform", "Model", "OperatorType", "OutputOptions", "RNNOutputs",
           "RecurrentNetworkDirection", "ScaleBias", "TensorData", "TensorDataType", "TensorDesc", "TensorFlags",
           "TensorPolicy", "add", "gather", "gemm", "gru", "identity", "input_tensor", "join", "lstm", "multiply",
           "reinterpret", "rnn", "slice", "subtract"]

TensorDataType = descs.DML_TENSOR_DATA_TYPE
TensorFlags = descs.DML_TENSOR_FLAGS
OperatorType = descs.DML_OPERATOR_TYPE
MatrixTransform = descs.DML_MATRIX_TRANSFORM
ScaleBias = descs.DML_SCALE_BIAS
RecurrentNetworkDirection = descs.DML_RECURRENT_NETWORK_DIRECTION
ExecutionFlags = descs.DML_EXECUTION_FLAGS


@dataclass(frozen=True)
class FusedActivation:
    """An activation in another operator. Source: DirectMLX's FusedActivation.

    activation: INVALID means none, if the operator needs none. param_1, param_2: the fields of its
    DML_ACTIVATION_*_OPERATOR_DESC, in order, such as Alpha and Beta. Their default is 0, not the descriptor's.
    """

    activation: OperatorType
    param_1: float = 0
    param_2: float = 0

    def __post_init__(self) -> None:
        check_type("FusedActivation", "activation", self.activation, OperatorType)

    def desc(self) -> descs.DML_OPERATOR_DESC:
        row = activations.BY_TYPE.get(self.activation)
        return descs.DML_OPERATOR_DESC(self.activation, row and row.desc(**dict(zip(row.fields, (self.param_1, self.param_2)))))


NOT_FUSED = FusedActivation(OperatorType.INVALID)


# The outputs of a recurrent operator: all, the sequence only, or the last states only
OutputOptions = IntEnum("OutputOptions", ["Both", "Sequence", "Single"], start=0)


@dataclass(slots=True)
class GRUOutputs:
    """The outputs sequence {T, D, B, H} and single {1, D, B, H}; an empty Expression if output_options leaves one out."""

    sequence: Expression
    single: Expression


@dataclass(slots=True)
class LSTMOutputs(GRUOutputs):
    """The outputs of an LSTM: those of GRUOutputs, and cell_single {1, D, B, H}."""

    cell_single: Expression


RNNOutputs = GRUOutputs


def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    """Add an input to the models that a builder builds. A Binding gives it data. Source: PyDirectML's input_tensor.

    input_index: a whole number from 0, different for each input. Raises InvalidArgumentError for an index that is taken.
    """
    check_type("input_tensor", "scope", scope, GraphBuilder)
    check_type("input_tensor", "tensor_desc", tensor_desc, TensorDesc)
    name = f"input {check_index('input_tensor', 'input_index', input_index, 2**32)}"
    if name in scope.inputs:
        raise InvalidArgumentError("input_tensor", "input_index", f"{input_index}, which another input has", "a different one")
    scope.inputs.add(name)
    return Expression(scope, name, tensor_desc, tensor_desc.total_tensor_size_in_bytes)


def reinterpret(input: Expression, new_type: TensorDataType, new_size: Sequence[int], new_strides: Sequence[int] | None
                ) -> Expression:
    """View an expression's memory with another type, sizes and strides (None: packed). Nothing is executed.

    This is how layers are chained: a sequence {T, 1, B, H} is the next layer's input {1, T, B, H}.

    Raises InvalidArgumentError if the new tensor is larger than the memory, or than the part that an operator writes.
    Source: PyDirectML's and DirectMLX's Reinterpret.
    """
    desc = Expression.checked("reinterpret", "input", input).desc
    new_desc = TensorDesc(new_type, desc.flags, new_size, new_strides, desc.total_tensor_size_in_bytes,
                          desc.guaranteed_base_offset_alignment)
    if (size := new_desc.tensor.bytes_of_elements) > input.written:
        raise InvalidArgumentError("reinterpret", "new_size", f"{size} bytes", f"at most {input.written}, which are written")
    return replace(input, desc=new_desc)


def gru(input: Expression, weight: Expression, recurrence: Expression, bias: Expression | None = None,
        hidden_init: Expression | None = None, sequence_lengths: Expression | None = None,
        activation_descs: Sequence[FusedActivation] = (), direction: RecurrentNetworkDirection | None = None,
        linear_before_reset: int = 1, output_options: OutputOptions | None = None) -> GRUOutputs:
    """A one-layer gated recurrent unit (PyDirectML's and DirectMLX's gru, DML_OPERATOR_GRU), gates in the order z r h.

    T time steps, B batch rows, I inputs, H hidden units, D directions (2 for BIDIRECTIONAL, else 1). All tensors are FLOAT32,
    or all are FLOAT16. As in PyDirectML, activation_descs, direction and output_options must be given.

    Args:
        input, weight, recurrence: {1, T, B, I}, {1, D, 3H, I}, {1, D, 3H, H}. bias, hidden_init: {1, 1, D, 6H}, {1, D, B, H};
            None for 0.
        sequence_lengths: UINT32 {1, 1, 1, B}, 0 to T; None for T.
        activation_descs: f and g for each direction, the forward one first.
        linear_before_reset: whether the candidate's recurrent part is computed before the reset gate is applied.
        output_options: which outputs to compute.
    """
    inputs = input, weight, recurrence, bias, hidden_init, sequence_lengths
    return GRUOutputs(*_recurrent(cells.GRU, inputs, activation_descs, direction, output_options,
                                  LinearBeforeReset=linear_before_reset))


def lstm(input: Expression, weight: Expression, recurrence: Expression, bias: Expression | None = None,
         hidden_init: Expression | None = None, cell_mem_init: Expression | None = None,
         sequence_lengths: Expression | None = None, peephole: Expression | None = None,
         activation_descs: Sequence[FusedActivation] = (), direction: RecurrentNetworkDirection | None = None,
         clip_threshold: float | None = None, couple_input_forget: bool = False, output_options: OutputOptions | None = None
         ) -> LSTMOutputs:
    """A one-layer long short-term memory (DML_OPERATOR_LSTM), gates in the order i o f c. Types and letters are those of `gru`.

    Args:
        weight, recurrence, bias: {1, D, 4H, I}, {1, D, 4H, H}, {1, 1, D, 8H}. input, sequence_lengths: as `gru` has them.
        hidden_init, cell_mem_init: {1, D, B, H}. None for 0.
        peephole: {1, 1, D, 3H}, gates i o f; None for no peepholes.
        activation_descs: f, g and h for each direction, the forward one first.
        clip_threshold: the inputs of f and g are clipped to -clip_threshold ... clip_threshold; None for no clipping.
        couple_input_forget: whether the forget gate is 1 - the input gate.
        output_options: Single means both last states, Both all three outputs.
    """
    inputs = input, weight, recurrence, bias, hidden_init, cell_mem_init, sequence_lengths, peephole
    clip = {"ClipThreshold": clip_threshold, "UseClipThreshold": clip_threshold is not None}
    return LSTMOutputs(*_recurrent(cells.LSTM, inputs, activation_descs, direction, output_options, **clip,
                                   CoupleInputForget=couple_input_forget))


def rnn(input: Expression, weight: Expression, recurrence: Expression, bias: Expression | None = None,
        hidden_init: Expression | None = None, sequence_lengths: Expression | None = None,
        activation_descs: Sequence[FusedActivation] = (), direction: RecurrentNetworkDirection | None = None,
        output_options: OutputOptions | None = None) -> RNNOutputs:
    """A one-layer simple recurrent network (DML_OPERATOR_RNN).

    The arguments are those of `gru`, with one gate: weight {1, D, H, I}, recurrence {1, D, H, H}, bias {1, 1, D, 2H};
    activation_descs: f for each direction.
    """
    inputs = input, weight, recurrence, bias, hidden_init, sequence_lengths
    return RNNOutputs(*_recurrent(cells.RNN, inputs, activation_descs, direction, output_options))


def _recurrent(cell: cells.Cell, inputs: Sequence[Expression | None], activation_descs: Sequence[FusedActivation],
               direction: RecurrentNetworkDirection | None, output_options: OutputOptions | None, **fields: Any
               ) -> list[Expression]:
    """Add a recurrent operator. Returns its outputs, in order. inputs: in the cell's order. fields: the structure's others."""
    call = cell.kernel
    fused = check_list(call, "activation_descs", activation_descs, FusedActivation)
    check_type(call, "output_options", output_options, OutputOptions)
    given = _checked(call, {field: expression for field, expression in zip(cell.inputs, inputs)
                                if expression is not None or field in cell.required})
    x, w, r = ((*given[field].desc.sizes, 1, 1, 1, 1)[1:4] for field in cell.required)  # missing sizes are refused later
    sizes = cell.sizes(x, w, r, 2 if direction is RecurrentNetworkDirection.BIDIRECTIONAL else 1)
    others = {"OutputSequenceTensor": OutputOptions.Single}  # output -> the option that leaves it out
    outputs = {field: [evaluate(formula, sizes) for formula in formulas] for field, formulas in cell.outputs.items()
               if output_options != others.get(field, OutputOptions.Sequence)}
    made = _operate(call, cell.desc, given, outputs, ActivationDescs=[activation.desc() for activation in fused],
                    Direction=direction, **fields)
    return [made.get(field, Expression()) for field in cell.outputs]


def _checked(call: str, inputs: Mapping[str, Any]) -> dict[str, Expression]:
    """Check an operator's inputs, by field: all must be expressions of one builder."""
    first, *_ = inputs
    builder = Expression.checked(call, first, inputs[first]).builder
    return {field: Expression.checked(call, field, expression, builder) for field, expression in inputs.items()}


def _operate(call: str, structure: Any, inputs: Mapping[str, Expression], outputs: Mapping[str, Sequence[int]] | None = None,
             **fields: Any) -> dict[str, Expression]:
    """Add an operator to the graph of its inputs. Returns the expressions of its outputs: packed, of the first input's type.

    inputs: by field. outputs: sizes by field; by default an OutputTensor of the first input's. fields: the structure's others.
    """
    first, *_ = _checked(call, inputs).values()
    sizes = outputs or {OUTPUT: first.desc.sizes}
    made = {field: TensorDesc(first.desc.data_type, list(of_field)) for field, of_field in sizes.items()}
    tensors = {field: expression.desc.buffer_desc for field, expression in inputs.items()}
    tensors |= {field: desc.buffer_desc for field, desc in made.items()}
    return first.builder.add_operator(structure(**tensors, **fields), inputs, made)


def add(a: Expression, b: Expression, fused_activation: FusedActivation = NOT_FUSED) -> Expression:
    """a + b, element by element (PyDirectML's add, DML_OPERATOR_ELEMENT_WISE_ADD1): FLOAT32 or FLOAT16, of the same sizes."""
    return _operate("add", descs.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC, {"ATensor": a, "BTensor": b},
                    FusedActivation=_fused("add", fused_activation))[OUTPUT]


def subtract(a: Expression, b: Expression) -> Expression:
    """a - b, element by element (PyDirectML's subtract, DML_OPERATOR_ELEMENT_WISE_SUBTRACT). Tensors as for `add`."""
    return _operate("subtract", descs.DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC, {"ATensor": a, "BTensor": b})[OUTPUT]


def multiply(a: Expression, b: Expression) -> Expression:
    """a * b, element by element (PyDirectML's multiply, DML_OPERATOR_ELEMENT_WISE_MULTIPLY). Tensors as for `add`."""
    return _operate("multiply", descs.DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC, {"ATensor": a, "BTensor": b})[OUTPUT]


def identity(input: Expression, scale_bias: ScaleBias | None = None) -> Expression:
    """Copy a tensor of any type, packed, or compute x * Scale + Bias of floats (DML_OPERATOR_ELEMENT_WISE_IDENTITY)."""
    inputs = {"InputTensor": Expression.checked("identity", "input", input)}
    return _operate("identity", descs.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC, inputs, ScaleBias=scale_bias)[OUTPUT]


def gemm(a: Expression, b: Expression, c: Expression | None = None, trans_a: MatrixTransform = MatrixTransform.NONE,
         trans_b: MatrixTransform = MatrixTransform.NONE, alpha: float = 1.0, beta: float = 1.0,
         fused_activation: FusedActivation = NOT_FUSED) -> Expression:
    """Compute alpha * a x b + beta * c in the last two of 2 to 4 dimensions, then an activation (PyDirectML's gemm)."""
    inputs = {"ATensor": a, "BTensor": b} | ({"CTensor": c} if c is not None else {})
    sizes, b_sizes, *_ = (expression.desc.sizes for expression in _checked("gemm", inputs).values())
    if min(len(sizes), len(b_sizes)) >= 2:  # else the operator's check refuses them
        row, column = -1 if trans_a == MatrixTransform.TRANSPOSE else -2, -2 if trans_b == MatrixTransform.TRANSPOSE else -1
        sizes = [*sizes[:-2], sizes[row], b_sizes[column]]
    return _operate("gemm", descs.DML_GEMM_OPERATOR_DESC, inputs, {OUTPUT: sizes}, TransA=trans_a, TransB=trans_b, Alpha=alpha,
                    Beta=beta, FusedActivation=_fused("gemm", fused_activation))[OUTPUT]


def _fused(call: str, fused_activation: FusedActivation) -> descs.DML_OPERATOR_DESC | None:
    check_type(call, "fused_activation", fused_activation, FusedActivation)
    return None if fused_activation.activation == OperatorType.INVALID else fused_activation.desc()


def join(input: Sequence[Expression], axis: int) -> Expression:
    """Concatenate tensors of one type along an axis (PyDirectML's join, DML_OPERATOR_JOIN)."""
    given = check_list("join", "input", input, Expression)
    check_index("join", "input", 0, len(given))  # refuses an empty list
    inputs = _checked("join", {f"InputTensors[{i}]": expression for i, expression in enumerate(given)})
    first, *others = (expression.desc for expression in inputs.values())
    axis = check_index("join", "axis", axis, len(first.sizes))
    along = first.sizes[axis] + sum(other.sizes[axis] for other in others if len(other.sizes) == len(first.sizes))
    output = TensorDesc(first.data_type, [*first.sizes[:axis], along, *first.sizes[axis + 1:]])
    desc = descs.DML_JOIN_OPERATOR_DESC(InputTensors=[first.buffer_desc, *(other.buffer_desc for other in others)],
                                        OutputTensor=output.buffer_desc, Axis=axis)
    return given[0].builder.add_operator(desc, inputs, {OUTPUT: output})[OUTPUT]


def slice(input: Expression, input_window_offsets: Sequence[int], input_window_sizes: Sequence[int],
          input_window_strides: Sequence[int]) -> Expression:
    """Take every stride-th element of a window, backwards if it is negative (PyDirectML's slice, DML_OPERATOR_SLICE1)."""
    source = tuple(Expression.checked("slice", "input", input).desc.sizes)
    window = {"InputWindowOffsets": input_window_offsets, "InputWindowSizes": input_window_sizes,
              "InputWindowStrides": input_window_strides}
    _, sizes, _ = window_of(descs.DML_SLICE1_OPERATOR_DESC.__name__, source, window)
    return _operate("slice", descs.DML_SLICE1_OPERATOR_DESC, {"InputTensor": input}, {OUTPUT: sizes}, **window)[OUTPUT]


def gather(input: Expression, indices: Expression, axis: int, index_dimensions: int) -> Expression:
    """Take the elements at given indices along an axis (PyDirectML's gather, DML_OPERATOR_GATHER).

    input: of any type. indices: UINT32, INT32, UINT64 or INT64, with as many dimensions as the input, of which the last
    index_dimensions count.
    """
    inputs = {"InputTensor": input, "IndicesTensor": indices}
    source, places = (tuple(expression.desc.sizes) for expression in _checked("gather", inputs).values())
    axis = check_index("gather", "axis", axis, len(source))
    index_dimensions = check_index("gather", "index_dimensions", index_dimensions, len(source) + 1)
    sizes = output_sizes(source, places, axis, index_dimensions)
    return _operate("gather", descs.DML_GATHER_OPERATOR_DESC, inputs, {OUTPUT: sizes}, Axis=axis,
                    IndexDimensions=index_dimensions)[OUTPUT]


def _activation(row: activations.Activation) -> Callable[..., Expression]:
    """Make the function of a row of the table of activations, such as activation_relu. Its defaults are the descriptor's."""
    name = row.operator_type.name.lower()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(field.lower(), kind, default=getattr(row.desc, field)) for field in row.fields]
    signature = inspect.Signature([inspect.Parameter("input", kind), *parameters])

    def function(*args: Any, **kwargs: Any) -> Expression:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        input, *values = bound.arguments.values()
        inputs = {"InputTensor": Expression.checked(name, "input", input)}
        return _operate(name, row.desc, inputs, **dict(zip(row.fields, values)))[OUTPUT]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (f"{row.desc.__name__} on each element of a FLOAT32 or FLOAT16 tensor of 1 to 8 dimensions.\n\n"
                        "Raises InvalidArgumentError for another type and for parameters that are not allowed.")
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _method(function: Any, with_number: Any) -> Any:
    """Make an arithmetic method. For a number it is ELEMENT_WISE_IDENTITY with a scale and a bias: with_number(number)."""
    def method(self: Expression, other: Any) -> Expression:
        if isinstance(other, numbers.Real):
            return identity(self, ScaleBias(*with_number(float(other))))
        return function(self, other) if function and isinstance(other, Expression) else NotImplemented

    return method


for _name, _function, _with_number in (
        ("add", add, lambda number: (1.0, number)), ("radd", add, lambda number: (1.0, number)),
        ("sub", subtract, lambda number: (1.0, -number)), ("rsub", subtract, lambda number: (-1.0, number)),
        ("mul", multiply, lambda number: (number, 0.0)), ("rmul", multiply, lambda number: (number, 0.0)),
        ("truediv", None, lambda number: (1 / number if number else math.inf, 0.0))):  # PyDirectML multiplies, too
    setattr(Expression, f"__{_name}__", _method(_function, _with_number))
setattr(Expression, "__neg__", lambda self: identity(self, ScaleBias(-1.0, 0.0)))  # noqa: B010 (for type checkers)

_ACTIVATIONS = {row.operator_type.name.lower(): _activation(row) for row in activations.BY_DESC.values()}
__all__ += list(_ACTIVATIONS)
globals().update(_ACTIVATIONS)
# PyDirectML exports the members of its enumerations: dml.FLOAT32
for _enumeration in (TensorDataType, TensorFlags, MatrixTransform, RecurrentNetworkDirection, ExecutionFlags, OperatorType):
    globals().update(_enumeration.__members__)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"vkdml.pydirectml has no {name!r}: of PyDirectML, it has what recurrent networks need: "
                         + ", ".join(known for known in __all__ if known.islower()))
