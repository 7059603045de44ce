"""The part of PyDirectML that recurrent networks need: `import vkdml.pydirectml as dml` instead of `import pydirectml as dml`.

    device = dml.Device()
    builder = dml.GraphBuilder(device)
    x = dml.input_tensor(builder, 0, dml.TensorDesc(dml.TensorDataType.FLOAT32, [1, T, B, I]))  # and so on: w, r
    y = dml.gru(x, w, r, activation_descs=[dml.FusedActivation(dml.OperatorType.ACTIVATION_SIGMOID), ...], direction=...,
                output_options=dml.OutputOptions.Sequence).sequence
    model = builder.build(dml.ExecutionFlags.NONE, [y])
    data, = device.compute(model, [dml.Binding(x, ...), dml.Binding(w, ...), dml.Binding(r, ...)], [y])

It has PyDirectML's gru, gemm, add, subtract, multiply, join, slice and gather and, beyond PyDirectML, lstm, rnn, identity and
all activations. PyDirectML's other operators raise InvalidArgumentError when they are called.
Sources: Python/src/module.cpp and Libraries/DirectMLX.h of microsoft/DirectML.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NoReturn

from ...errors import InvalidArgumentError, check_type
from ...operators import activations, cells, element_types
from ...operators.activations import Activation
from ...operators.cells import Cell
from ...operators.checks import check_tensor, evaluate
from ...operators.header import descs
from .expression_graphs import Binding, Device, Expression, GraphBuilder, Model, check_list, express, value_of
from .plain_operators import METHODS, FusedActivation, add, gather, gemm, identity, join, multiply, slice, subtract
from .tensors import Dimensions, TensorData, TensorDesc, TensorPolicy

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


class OutputOptions(IntEnum):
    """The outputs of a recurrent operator: all, the sequence only, or the last states only."""

    Both = 0
    Sequence = 1
    Single = 2


# An output is wanted if the entry has True for the sequence, False for a last state
_WANTED = {OutputOptions.Both: (True, False), OutputOptions.Sequence: (True,), OutputOptions.Single: (False,)}


@dataclass
class GRUOutputs:
    """sequence {T, D, B, H}, single {1, D, B, H}; an empty Expression where output_options leaves one out."""

    sequence: Expression
    single: Expression


@dataclass
class LSTMOutputs(GRUOutputs):
    """The same of an LSTM, and cell_single {1, D, B, H}."""

    cell_single: Expression


class RNNOutputs(GRUOutputs):
    """The same of an RNN."""


def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    """An input of the models that a builder builds. A Binding gives it data. Source: PyDirectML's input_tensor.

    input_index: a whole number from 0, different for each input. Raises InvalidArgumentError for an index that is taken.
    """
    check_type("input_tensor", "scope", scope, GraphBuilder)
    check_type("input_tensor", "tensor_desc", tensor_desc, TensorDesc)
    return scope.add_input(input_index, tensor_desc)


def reinterpret(input: Expression, new_type: TensorDataType, new_size: Sequence[int], new_strides: Sequence[int] | None
                ) -> Expression:
    """The same memory with another type, sizes and strides (None: packed). Nothing is executed.

    This is how layers are chained: a sequence {T, 1, B, H} is the next layer's input {1, T, B, H}.

    Raises InvalidArgumentError if the new tensor is larger than the memory. Source: PyDirectML's and DirectMLX's Reinterpret.
    """
    value = value_of("reinterpret", "input", input)
    desc = TensorDesc(new_type, value.desc.flags, new_size, new_strides, value.desc.total_tensor_size_in_bytes,
                      value.desc.guaranteed_base_offset_alignment)
    return express(replace(value, desc=desc))


def gru(input: Expression, weight: Expression, recurrence: Expression, bias: Expression | None = None,
        hidden_init: Expression | None = None, sequence_lengths: Expression | None = None,
        activation_descs: Sequence[FusedActivation] = (), direction: RecurrentNetworkDirection | None = None,
        linear_before_reset: int = 1, output_options: OutputOptions | None = None) -> GRUOutputs:
    """A one-layer gated recurrent unit (PyDirectML's and DirectMLX's gru, DML_OPERATOR_GRU), gates in the order z r h.

    T time steps, B batch rows, I inputs, H hidden units, D directions (2 for BIDIRECTIONAL, else 1). All tensors are FLOAT32,
    or all are FLOAT16. As in PyDirectML, activation_descs, direction and output_options must be given.

    Args:
        input, weight, recurrence: {1, T, B, I}, {1, D, 3H, I}, {1, D, 3H, H}.
        bias: {1, 1, D, 6H}. hidden_init: {1, D, B, H}. None for 0.
        sequence_lengths: UINT32 {1, 1, 1, B}, 0 to T; None for T.
        activation_descs: f and g for each direction, the forward one first.
        linear_before_reset: whether the candidate's recurrent part is computed before the reset gate is applied.
        output_options: which outputs to compute.

    Raises InvalidArgumentError, which names the field of DML_GRU_OPERATOR_DESC, what was found and what is allowed.
    """
    return GRUOutputs(*_recurrent(cells.GRU, locals(), LinearBeforeReset=linear_before_reset))


def lstm(input: Expression, weight: Expression, recurrence: Expression, bias: Expression | None = None,
         hidden_init: Expression | None = None, cell_mem_init: Expression | None = None,
         sequence_lengths: Expression | None = None, peephole: Expression | None = None,
         activation_descs: Sequence[FusedActivation] = (), direction: RecurrentNetworkDirection | None = None,
         clip_threshold: float | None = None, couple_input_forget: bool = False, output_options: OutputOptions | None = None
         ) -> LSTMOutputs:
    """A one-layer long short-term memory (DML_OPERATOR_LSTM), gates in the order i o f c. Types and letters are those of `gru`.

    Args:
        input, weight, recurrence: {1, T, B, I}, {1, D, 4H, I}, {1, D, 4H, H}.
        bias: {1, 1, D, 8H}. hidden_init, cell_mem_init: {1, D, B, H}. None for 0.
        sequence_lengths: UINT32 {1, 1, 1, B}, 0 to T; None for T.
        peephole: {1, 1, D, 3H}, gates i o f; None for no peepholes.
        activation_descs: f, g and h for each direction, the forward one first.
        clip_threshold: the inputs of f and g are clipped to -clip_threshold ... clip_threshold; None for no clipping.
        couple_input_forget: whether the forget gate is 1 - the input gate.
        output_options: Single means both last states, Both all three outputs.

    Raises InvalidArgumentError, which names the field of DML_LSTM_OPERATOR_DESC, what was found and what is allowed.
    """
    clip = {"ClipThreshold": clip_threshold, "UseClipThreshold": clip_threshold is not None}
    return LSTMOutputs(*_recurrent(cells.LSTM, locals(), **clip, CoupleInputForget=couple_input_forget))


def rnn(input: Expression, weight: Expression, recurrence: Expression, bias: Expression | None = None,
        hidden_init: Expression | None = None, sequence_lengths: Expression | None = None,
        activation_descs: Sequence[FusedActivation] = (), direction: RecurrentNetworkDirection | None = None,
        output_options: OutputOptions | None = None) -> RNNOutputs:
    """A one-layer simple recurrent network (DML_OPERATOR_RNN).

    The arguments are those of `gru`, with one gate: weight {1, D, H, I}, recurrence {1, D, H, H}, bias {1, 1, D, 2H};
    activation_descs: f for each direction.

    Raises InvalidArgumentError, which names the field of DML_RNN_OPERATOR_DESC, what was found and what is allowed.
    """
    return RNNOutputs(*_recurrent(cells.RNN, locals()))


_ARGUMENTS = {"InputTensor": "input", "WeightTensor": "weight", "RecurrenceTensor": "recurrence", "BiasTensor": "bias",
              "HiddenInitTensor": "hidden_init", "CellMemInitTensor": "cell_mem_init",
              "SequenceLengthsTensor": "sequence_lengths", "PeepholeTensor": "peephole"}
_FLOATS = {element.data_type: element.itemsize for element in element_types.IN_DIRECTML}


def _recurrent(cell: Cell, given: Mapping[str, Any], **attributes: Any) -> list[Expression]:
    """The expressions of a cell's outputs, in order. given: its function's arguments. attributes: the cell's own fields."""
    call, direction = cell.kernel, given["direction"]
    inputs = {field: given[argument] for field, argument in _ARGUMENTS.items() if field in cell.inputs}
    wanted = _WANTED[check_type(call, "output_options", given["output_options"], OutputOptions)]
    builder = value_of(call, "InputTensor", inputs["InputTensor"]).builder
    values = {field: value_of(call, field, expression, builder) for field, expression in inputs.items()
              if expression is not None or field in cell.required}
    fused = check_list(call, "activation_descs", given["activation_descs"], FusedActivation)
    for i, activation in enumerate(fused):
        check_type(call, f"activation_descs[{i}]", activation, FusedActivation)
    outputs = _outputs(cell, {field: value.desc for field, value in values.items()}, direction, wanted)
    descs = {field: value.desc.buffer_desc for field, value in values.items()}
    descs |= {field: desc.buffer_desc for field, desc in outputs.items()}
    desc = cell.desc(**descs, ActivationDescs=[activation.desc() for activation in fused], Direction=direction, **attributes)
    made = builder.add_operator(desc, values, outputs)
    return [made.get(field, Expression()) for field in cell.outputs]


def _outputs(cell: Cell, inputs: Mapping[str, TensorDesc], direction: RecurrentNetworkDirection | None,
             wanted: Sequence[bool]) -> dict[str, TensorDesc]:
    """The descriptions of the wanted outputs: packed and of the input's type, as in DirectMLX."""
    x, r = (check_tensor(cell.desc.__name__, field, inputs[field].buffer_desc, _FLOATS, (4,)).sizes
            for field in ("InputTensor", "RecurrenceTensor"))
    directions = 2 if isinstance(direction, int) and direction == RecurrentNetworkDirection.BIDIRECTIONAL else 1
    sizes = {"T": x[1], "B": x[2], "H": r[3], "D": directions}
    return {field: TensorDesc(inputs["InputTensor"].data_type, [evaluate(formula, sizes) for formula in formulas])
            for field, formulas in cell.outputs.items() if (field == "OutputSequenceTensor") in wanted}


def _activation(row: Activation) -> Callable[..., Expression]:
    """The function of a row of the table of activations, such as activation_relu. Its defaults are the descriptor's."""
    name = row.operator_type.name.lower()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(field.lower(), kind, default=getattr(row.desc, field)) for field in row.fields]
    signature = inspect.Signature([inspect.Parameter("input", kind), *parameters])

    def function(*args: Any, **kwargs: Any) -> Expression:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        input, *values = bound.arguments.values()
        value = value_of(name, "input", input)
        output = TensorDesc(value.desc.data_type, value.desc.sizes)
        desc = row.desc(InputTensor=value.desc.buffer_desc, OutputTensor=output.buffer_desc, **dict(zip(row.fields, values)))
        return value.builder.add_operator(desc, {"InputTensor": value}, {"OutputTensor": output})["OutputTensor"]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (f"{row.desc.__name__} on each element of a FLOAT32 or FLOAT16 tensor of 1 to 8 dimensions.\n\n"
                        "Raises InvalidArgumentError for another type and for parameters that are not allowed.")
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _unsupported(name: str) -> Callable[..., NoReturn]:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidArgumentError(name, "operator", "one that vkdml does not have",
                                   "one of " + ", ".join(name for name in __all__ if name.islower()))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Not supported: raises InvalidArgumentError."
    return function


_UNSUPPORTED = (
    "activation_soft_max", "average_pooling", "batch_normalization", "convolution", "divide", "local_response_normalization",
    "max_pooling", "mean_variance_normalization", "padding", "up_sample_2d", "value_scale_2d",
)
_UNSUPPORTED_METHODS = {"__truediv__": "divide", "__rtruediv__": "divide", "__mod__": "modulus"}
for _name, _method in (METHODS | {name: _unsupported(operator) for name, operator in _UNSUPPORTED_METHODS.items()}).items():
    setattr(Expression, _name, _method)

_ACTIVATIONS = {row.operator_type.name.lower(): _activation(row) for row in activations.BY_DESC.values()}
__all__ += list(_ACTIVATIONS)
globals().update(_ACTIVATIONS)
globals().update({name: _unsupported(name) for name in _UNSUPPORTED})
# PyDirectML exports the members of its enumerations: dml.FLOAT32
for _enumeration in (TensorDataType, TensorFlags, MatrixTransform, RecurrentNetworkDirection, ExecutionFlags, OperatorType):
    globals().update(_enumeration.__members__)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"vkdml.pydirectml has no {name!r}: of PyDirectML, it has what recurrent networks need")
