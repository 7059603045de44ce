"""PyDirectML's operators without a time loop, and arithmetic with expressions.

Names, arguments and defaults are those of Python/src/module.cpp of microsoft/DirectML; `identity` and what arithmetic makes are
DirectMLX's. Wrong arguments raise InvalidArgumentError, which names the field of the operator's structure.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import check_type
from ...operators import activations
from ...operators.checks import check_index
from ...operators.copy_problem import output_sizes, window_of
from ...operators.header import descs
from ...operators.header.descs import DML_MATRIX_TRANSFORM, DML_OPERATOR_DESC, DML_OPERATOR_TYPE, DML_SCALE_BIAS
from ...operators.plain_problem import OUTPUT
from .expression_graphs import Expression, Value, check_list, value_of
from .tensors import TensorDesc


@dataclass(frozen=True)
class FusedActivation:
    """An activation in another operator. Source: DirectMLX's FusedActivation.

    activation: INVALID for none, where an operator can do without. param_1, param_2: the fields of its
    DML_ACTIVATION_*_OPERATOR_DESC, in order, such as Alpha and Beta. Their default is 0, not the descriptor's.
    """

    activation: DML_OPERATOR_TYPE
    param_1: float = 0
    param_2: float = 0

    def __post_init__(self) -> None:
        check_type("FusedActivation", "activation", self.activation, DML_OPERATOR_TYPE)

    def desc(self) -> DML_OPERATOR_DESC:
        row = activations.BY_TYPE.get(self.activation)
        return DML_OPERATOR_DESC(self.activation, row and row.desc(**dict(zip(row.fields, (self.param_1, self.param_2)))))


NOT_FUSED = FusedActivation(DML_OPERATOR_TYPE.INVALID)


def add(a: Expression, b: Expression, fused_activation: FusedActivation = NOT_FUSED) -> Expression:
    """a + b, element by element (PyDirectML's add, DML_OPERATOR_ELEMENT_WISE_ADD1): FLOAT32 or FLOAT16, of the same sizes."""
    fused = _fused("add", fused_activation)
    if fused is None:
        return _binary("add", descs.DML_ELEMENT_WISE_ADD_OPERATOR_DESC, a, b)
    return _binary("add", descs.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC, a, b, FusedActivation=fused)


def subtract(a: Expression, b: Expression) -> Expression:
    """a - b, element by element (PyDirectML's subtract, DML_OPERATOR_ELEMENT_WISE_SUBTRACT). Tensors as for `add`."""
    return _binary("subtract", descs.DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC, a, b)


def multiply(a: Expression, b: Expression) -> Expression:
    """a * b, element by element (PyDirectML's multiply, DML_OPERATOR_ELEMENT_WISE_MULTIPLY). Tensors as for `add`."""
    return _binary("multiply", descs.DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC, a, b)


def identity(input: Expression, scale_bias: DML_SCALE_BIAS | None = None) -> Expression:
    """A packed copy of any type, or x * Scale + Bias of floats (DirectMLX's Identity, DML_OPERATOR_ELEMENT_WISE_IDENTITY)."""
    value = value_of("identity", "input", input)
    return _operator({"InputTensor": value}, value.desc.sizes, descs.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC,
                     ScaleBias=scale_bias)


def gemm(a: Expression, b: Expression, c: Expression | None = None, trans_a: DML_MATRIX_TRANSFORM = DML_MATRIX_TRANSFORM.NONE,
         trans_b: DML_MATRIX_TRANSFORM = DML_MATRIX_TRANSFORM.NONE, alpha: float = 1.0, beta: float = 1.0,
         fused_activation: FusedActivation = NOT_FUSED) -> Expression:
    """alpha * a x b + beta * c of matrices in the last two of 2 to 4 dimensions, and an activation of it (PyDirectML's and
    DirectMLX's gemm, DML_OPERATOR_GEMM): FLOAT32 or FLOAT16.
    """
    values = _values("gemm", {"ATensor": a, "BTensor": b, "CTensor": c})
    sizes, b_sizes = values["ATensor"].desc.sizes, values["BTensor"].desc.sizes
    if min(len(sizes), len(b_sizes)) >= 2:  # else the operator refuses them
        transposed = DML_MATRIX_TRANSFORM.TRANSPOSE
        row, column = -1 if trans_a == transposed else -2, -2 if trans_b == transposed else -1
        sizes = [*sizes[:-2], sizes[row], b_sizes[column]]
    return _operator(values, sizes, descs.DML_GEMM_OPERATOR_DESC, TransA=trans_a, TransB=trans_b, Alpha=alpha, Beta=beta,
                     FusedActivation=_fused("gemm", fused_activation))


def join(input: Sequence[Expression], axis: int) -> Expression:
    """Tensors of one type one behind the other along an axis (PyDirectML's join, DML_OPERATOR_JOIN)."""
    inputs = check_list("join", "input", input, Expression)
    check_index("join", "input", 0, len(inputs))  # at least one input is there
    values = _values("join", {f"InputTensors[{i}]": expression for i, expression in enumerate(inputs)})
    first, *others = (value.desc.sizes for value in values.values())
    axis = check_index("join", "axis", axis, len(first))
    along = first[axis] + sum(sizes[axis] for sizes in others if len(sizes) == len(first))
    output = TensorDesc(values["InputTensors[0]"].desc.data_type, [*first[:axis], along, *first[axis + 1:]])
    desc = descs.DML_JOIN_OPERATOR_DESC(InputTensors=[value.desc.buffer_desc for value in values.values()],
                                  OutputTensor=output.buffer_desc, Axis=axis)
    return values["InputTensors[0]"].builder.add_operator(desc, values, {OUTPUT: output})[OUTPUT]


def slice(input: Expression, input_window_offsets: Sequence[int], input_window_sizes: Sequence[int],
          input_window_strides: Sequence[int]) -> Expression:
    """Every stride-th element of a window, of any type; backwards where the stride is negative (PyDirectML's slice,
    DML_OPERATOR_SLICE1).
    """
    value = value_of("slice", "input", input)
    window = {"InputWindowOffsets": input_window_offsets, "InputWindowSizes": input_window_sizes,
              "InputWindowStrides": input_window_strides}
    _, sizes, _ = window_of(descs.DML_SLICE1_OPERATOR_DESC.__name__, tuple(value.desc.sizes), window)
    return _operator({"InputTensor": value}, sizes, descs.DML_SLICE1_OPERATOR_DESC, **window)


def gather(input: Expression, indices: Expression, axis: int, index_dimensions: int) -> Expression:
    """The elements of a tensor of any type at places along an axis that indices say (PyDirectML's gather, DML_OPERATOR_GATHER).

    indices: UINT32, INT32, UINT64 or INT64, with as many dimensions as the input, of which the last index_dimensions count.
    """
    values = _values("gather", {"InputTensor": input, "IndicesTensor": indices})
    sizes, of_indices = (tuple(value.desc.sizes) for value in values.values())
    axis = check_index("gather", "axis", axis, len(sizes))
    index_dimensions = check_index("gather", "index_dimensions", index_dimensions, len(sizes) + 1)
    return _operator(values, output_sizes(sizes, of_indices, axis, index_dimensions), descs.DML_GATHER_OPERATOR_DESC, Axis=axis,
                     IndexDimensions=index_dimensions)


def _values(call: str, expressions: Mapping[str, Expression | None]) -> dict[str, Value]:
    """Values of the expressions that are given, by field. Refuses those of another builder than the first one's."""
    first, *_ = expressions
    builder = value_of(call, first, expressions[first]).builder
    return {field: value_of(call, field, expression, builder) for field, expression in expressions.items()
            if expression is not None}


def _operator(inputs: Mapping[str, Value], sizes: Sequence[int], structure: Any, **fields: Any) -> Expression:
    """The expression of an operator's output, packed and of the first input's type."""
    first = next(iter(inputs.values()))
    output = TensorDesc(first.desc.data_type, list(sizes))
    described = {field: value.desc.buffer_desc for field, value in inputs.items()}
    desc = structure(**described, OutputTensor=output.buffer_desc, **fields)
    return first.builder.add_operator(desc, inputs, {OUTPUT: output})[OUTPUT]


def _binary(call: str, structure: Any, a: Expression, b: Expression, **fields: Any) -> Expression:
    values = _values(call, {"ATensor": a, "BTensor": b})
    return _operator(values, values["ATensor"].desc.sizes, structure, **fields)


def _fused(call: str, fused_activation: FusedActivation) -> DML_OPERATOR_DESC | None:
    check_type(call, "fused_activation", fused_activation, FusedActivation)
    return None if fused_activation.activation == DML_OPERATOR_TYPE.INVALID else fused_activation.desc()


# Arithmetic: with a number, ELEMENT_WISE_IDENTITY with a scale and a bias

def _scaled(expression: Expression, scale: float, bias: float) -> Expression:
    return identity(expression, DML_SCALE_BIAS(scale, bias))


def _method(function: Any, with_number: Any) -> Any:
    """A method that takes another expression or a number."""
    def method(self: Expression, other: Any) -> Expression:
        if isinstance(other, numbers.Real):
            return _scaled(self, *with_number(float(other)))
        return function(self, other) if isinstance(other, Expression) else NotImplemented

    return method


METHODS = {
    "__add__": _method(add, lambda number: (1.0, number)),
    "__radd__": _method(add, lambda number: (1.0, number)),
    "__sub__": _method(subtract, lambda number: (1.0, -number)),
    "__rsub__": _method(subtract, lambda number: (-1.0, number)),
    "__mul__": _method(multiply, lambda number: (number, 0.0)),
    "__rmul__": _method(multiply, lambda number: (number, 0.0)),
    "__neg__": lambda self: _scaled(self, -1.0, 0.0),
}
