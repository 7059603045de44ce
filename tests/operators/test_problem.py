"""What a descriptor may say, and the error of each wrong one."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import vkdml
from vkdml.operators import cells
from vkdml.operators.element_types import FLOAT32 as FLOATS
from vkdml.operators.header import descs
from vkdml.operators.problem import from_desc, problem_of
from vkdml_lab.suite.support import FLOAT32, SIGMOID, TANH, UINT32, gru_desc, make_desc, tensor

T = vkdml.DML_OPERATOR_TYPE
DATA = vkdml.DML_TENSOR_DATA_TYPE
WORD: Any = "x"


def test_canonical_form():
    problem = from_desc(gru_desc(3, 2, 4, 5, 2))
    assert (problem.steps, problem.batch, problem.input_size, problem.hidden, problem.reverse) == (3, 2, 4, 5, (False, True))
    assert problem.tensor("InputTensor").strides == (24, 8, 4, 1)
    assert problem.tensor("WeightTensor").size_in_bytes == 2 * 15 * 4 * 4


def test_typed_descriptions_mean_the_same():
    plain = gru_desc()
    typed = gru_desc(InputTensor=vkdml.DML_TENSOR_DESC(vkdml.DML_TENSOR_TYPE.BUFFER, plain.InputTensor),
                     ActivationDescs=[vkdml.DML_OPERATOR_DESC(T.ACTIVATION_SIGMOID, SIGMOID),
                                      vkdml.DML_OPERATOR_DESC(T.ACTIVATION_TANH, TANH)], ActivationDescCount=2)
    assert from_desc(vkdml.DML_OPERATOR_DESC(T.GRU, typed)) == from_desc(plain)


@pytest.mark.parametrize(("changes", "field", "allowed"), [
    ({"InputTensor": tensor(3, 2, 4)}, "InputTensor.DimensionCount", "4"),
    ({"InputTensor": tensor(1, 3, 2, 4, DimensionCount=5)}, "InputTensor.DimensionCount", "4, as Sizes has"),
    ({"InputTensor": tensor(2, 3, 2, 4)}, "InputTensor.Sizes", r"\(1, 3, 2, 4\)"),
    ({"InputTensor": tensor(1, 0, 2, 4)}, "InputTensor.Sizes", "from 1"),
    ({"InputTensor": tensor(1, 3, 2.0, 4)}, "InputTensor.Sizes", "whole numbers"),
    ({"InputTensor": tensor(1, 3, 2, 2**32)}, "InputTensor.Sizes", "2\\*\\*32"),
    ({"InputTensor": None}, "InputTensor", "DML_TENSOR_DESC"),
    ({"InputTensor": "x"}, "InputTensor", "DML_TENSOR_DESC"),
    ({"WeightTensor": tensor(1, 1, 16, 4)}, "WeightTensor.Sizes", r"\{?\(1, 1, 15, 4\).*3\*H"),
    ({"WeightTensor": tensor(1, 2, 15, 4)}, "WeightTensor.Sizes", "D = 1"),
    ({"RecurrenceTensor": tensor(1, 1, 5, 15)}, "RecurrenceTensor.Sizes", r"\(1, 1, 15, 5\)"),
    ({"InputTensor": tensor(1, 3, 2, 3)}, "InputTensor.Sizes", "I = 4"),
    ({"BiasTensor": tensor(1, 1, 1, 15)}, "BiasTensor.Sizes", r"6\*H"),
    ({"HiddenInitTensor": tensor(1, 1, 3, 5)}, "HiddenInitTensor.Sizes", "B = 2"),
    ({"SequenceLengthsTensor": tensor(1, 1, 1, 3, data_type=UINT32)}, "SequenceLengthsTensor.Sizes", "B = 2"),
    ({"SequenceLengthsTensor": tensor(1, 1, 1, 2, data_type=DATA.INT32)}, "SequenceLengthsTensor.DataType", "UINT32"),
    ({"OutputSequenceTensor": tensor(1, 3, 2, 5)}, "OutputSequenceTensor.Sizes", "T, D, B, H"),
    ({"OutputSingleTensor": tensor(1, 1, 2, 4)}, "OutputSingleTensor.Sizes", "H = 5"),
    ({"OutputSingleTensor": None, "OutputSequenceTensor": None}, "OutputSequenceTensor and OutputSingleTensor", "at least one"),
    ({"WeightTensor": tensor(1, 1, 15, 4, data_type=DATA.FLOAT16)}, "WeightTensor.DataType", "FLOAT32"),
    ({"InputTensor": tensor(1, 3, 2, 4, data_type=DATA.FLOAT64)}, "InputTensor.DataType", "FLOAT32"),
    ({"InputTensor": tensor(1, 3, 2, 4, data_type="float32")}, "InputTensor.DataType", "FLOAT32"),
    ({"WeightTensor": tensor(1, 1, 15, 4, Flags=vkdml.DML_TENSOR_FLAGS.OWNED_BY_DML)}, "WeightTensor.Flags", "NONE, unless RecurrenceTensor and BiasTensor have it too"),
    ({"WeightTensor": tensor(1, 1, 15, 4, Flags=2)}, "WeightTensor.Flags", "NONE or OWNED_BY_DML"),
    ({"InputTensor": tensor(1, 3, 2, 4, Flags=vkdml.DML_TENSOR_FLAGS.OWNED_BY_DML)}, "InputTensor.Flags", "NONE"),
    ({"InputTensor": vkdml.DML_TENSOR_DESC(vkdml.DML_TENSOR_TYPE.INVALID, tensor(1, 3, 2, 4))}, "InputTensor.Type", "BUFFER"),
    ({"InputTensor": tensor(1, 3, 2, 4, Strides=(8, 4, 1))}, "InputTensor.Strides", "4"),
    ({"InputTensor": tensor(1, 3, 2, 4, Strides=(24, 8, -4, 1))}, "InputTensor.Strides", "from 0"),
    ({"OutputSequenceTensor": tensor(3, 1, 2, 5, Strides=(10, 0, 0, 1))}, "OutputSequenceTensor.Strides", "its own place"),
    ({"OutputSequenceTensor": tensor(3, 1, 2, 5, Strides=(2, 0, 6, 1))}, "OutputSequenceTensor.Strides", "its own place"),
    ({"InputTensor": tensor(1, 3, 2, 4, TotalTensorSizeInBytes=92)}, "InputTensor.TotalTensorSizeInBytes", "at least 96"),
    ({"InputTensor": tensor(1, 3, 2, 4, TotalTensorSizeInBytes=98)}, "InputTensor.TotalTensorSizeInBytes", "multiple of 4"),
    ({"InputTensor": tensor(1, 3, 2, 4, GuaranteedBaseOffsetAlignment=6)}, "InputTensor.GuaranteedBaseOffsetAlignment", "power"),
    ({"ActivationDescs": [SIGMOID]}, "ActivationDescs", "2"),
    ({"ActivationDescCount": 3}, "ActivationDescs", "2"),
    ({"ActivationDescs": [SIGMOID, None]}, r"ActivationDescs\[1\]", "ELU"),
    ({"ActivationDescs": [vkdml.DML_OPERATOR_DESC(T.ACTIVATION_SOFTMAX, None), TANH]}, r"ActivationDescs\[0\].Type", "ELU"),
    ({"ActivationDescs": [vkdml.DML_OPERATOR_DESC(T.GRU, None), TANH]}, r"ActivationDescs\[0\].Type", "elementwise"),
    ({"ActivationDescs": [vkdml.DML_OPERATOR_DESC(T.ACTIVATION_TANH, SIGMOID), TANH]}, r"ActivationDescs\[0\].Desc", "TANH"),
    ({"ActivationDescs": [descs.DML_ACTIVATION_ELU_OPERATOR_DESC(Alpha=math.nan), TANH]}, r"ActivationDescs\[0\].Alpha", "finite"),
    ({"ActivationDescs": [descs.DML_ACTIVATION_ELU_OPERATOR_DESC(Alpha=WORD), TANH]}, r"ActivationDescs\[0\].Alpha", "finite float32"),
    ({"ActivationDescs": [descs.DML_ACTIVATION_CELU_OPERATOR_DESC(Alpha=0), TANH]}, r"ActivationDescs\[0\].Alpha", "other than 0"),
    ({"ActivationDescs": [descs.DML_ACTIVATION_ELU_OPERATOR_DESC(InputTensor=tensor(1)), TANH]},
     r"ActivationDescs\[0\].InputTensor", "None"),
    ({"InputTensor": tensor(1, 3, 2, 4, TotalTensorSizeInBytes="x")}, "InputTensor.TotalTensorSizeInBytes", "whole"),
    ({"InputTensor": tensor(1, 3, 2, 4, GuaranteedBaseOffsetAlignment="x")}, "InputTensor.GuaranteedBaseOffsetAlignment", "whole"),
    ({"InputTensor": vkdml.DML_BUFFER_TENSOR_DESC(DataType=FLOAT32, Sizes=WORD)}, "InputTensor.Sizes", "whole"),
    ({"ActivationDescs": None}, "ActivationDescs", "list of 2"),
    ({"Direction": 3}, "Direction", "FORWARD, BACKWARD, BIDIRECTIONAL"),
    ({"Direction": "forward"}, "Direction", "FORWARD"),
    ({"Direction": vkdml.DML_MATRIX_TRANSFORM.NONE}, "Direction", "FORWARD"),  # a member of another enumeration
    ({"InputTensor": tensor(1, 3, 2, 4, Flags=vkdml.DML_MATRIX_TRANSFORM.NONE)}, "InputTensor.Flags", "NONE"),
    ({"InputTensor": tensor(1, 3, 2, 4, data_type=vkdml.DML_TENSOR_TYPE.BUFFER)}, "InputTensor.DataType", "FLOAT32"),
    ({"LinearBeforeReset": 0.5}, "LinearBeforeReset", "True or False, or a whole number as in C"),
])
def test_wrong_descriptor(changes, field, allowed):
    with pytest.raises(vkdml.InvalidArgumentError, match=rf"DML_GRU_OPERATOR_DESC: {field}: found .*; expected .*{allowed}"):
        from_desc(gru_desc(**changes))


def test_tensor_of_4_gib():
    """kp would wrap its size and compute on a small tensor."""
    with pytest.raises(vkdml.InvalidArgumentError, match="InputTensor.TotalTensorSizeInBytes: found 4294967296 bytes; expected at most"):
        from_desc(gru_desc(2**20, 4, 256, 5))


@pytest.mark.parametrize("clip", [math.nan, math.inf, -1.0, WORD])
def test_wrong_clip(clip):
    with pytest.raises(vkdml.InvalidArgumentError, match="DML_GRU_OPERATOR_DESC: clip: found .* expected a finite float32"):
        from_desc(gru_desc(), clip)
    lstm = make_desc(cells.LSTM, UseClipThreshold=True, ClipThreshold=clip)
    for wrong in (lstm, replace(lstm, ClipThreshold=None)):
        with pytest.raises(vkdml.InvalidArgumentError, match="DML_LSTM_OPERATOR_DESC: ClipThreshold: found .* expected a finite float32"):
            from_desc(wrong)
    assert from_desc(replace(lstm, UseClipThreshold=np.int64(0))).clip is None
    assert from_desc(replace(lstm, ClipThreshold=0)).clip == 0


@pytest.mark.parametrize("desc", [None, 3, tensor(1), vkdml.DML_OPERATOR_DESC(T.GRU, None)])
def test_not_an_operator(desc):
    with pytest.raises(vkdml.InvalidArgumentError, match="create_operator: desc: found .*; expected one of .*DML_GRU_OPERATOR_DESC"):
        from_desc(desc)


def test_wrong_operator_type():
    with pytest.raises(vkdml.InvalidArgumentError, match="DML_OPERATOR_DESC: Type"):
        from_desc(vkdml.DML_OPERATOR_DESC(T.ACTIVATION_TANH, gru_desc()))


def test_errors_are_value_errors():
    with pytest.raises(ValueError, match="found"):
        from_desc(None)
    assert issubclass(vkdml.DriverError, RuntimeError)
    assert issubclass(vkdml.DriverError, vkdml.VkdmlError)


def test_view_follows_strides():
    problem = from_desc(gru_desc(3, 2, 4, 5, InputTensor=tensor(1, 3, 2, 4, Strides=(0, 4, 12, 1))))
    batch_first = np.arange(24.0)
    expected = batch_first.reshape(2, 3, 4).transpose(1, 0, 2)[None]
    np.testing.assert_array_equal(problem.tensor("InputTensor").view(batch_first), expected)
    assert problem.tensor("InputTensor").data_type == FLOAT32


@pytest.mark.parametrize(("call", "field"), [
    (lambda: from_desc(gru_desc(2**20, 4, 256, 5)), "InputTensor.TotalTensorSizeInBytes"),
    (lambda: problem_of(cells.GRU, FLOATS, {"T": 2**20, "B": 4, "I": 256, "H": 5, "D": 1}, ["InputTensor"], ()), "InputTensor")])
def test_all_ways_refuse_4_gib_alike(call, field):
    with pytest.raises(vkdml.InvalidArgumentError, match=f": {field}: found 4294967296 bytes; expected at most 4294967292: storage"):
        call()
