"""Names of DirectML.h beside the structures."""

import pytest

import vkdml
from vkdml.operators.header.c_names import CONSTANTS

FLOAT32, FLOAT16, INT8, UINT64 = (vkdml.DML_TENSOR_DATA_TYPE[name] for name in ("FLOAT32", "FLOAT16", "INT8", "UINT64"))


@pytest.mark.parametrize(("name", "member"), [
    ("DML_TENSOR_DATA_TYPE_FLOAT16", FLOAT16), ("DML_TENSOR_TYPE_BUFFER", vkdml.DML_TENSOR_TYPE.BUFFER),
    ("DML_TENSOR_FLAG_OWNED_BY_DML", vkdml.DML_TENSOR_FLAGS.OWNED_BY_DML), ("DML_OPERATOR_GRU", vkdml.DML_OPERATOR_TYPE.GRU),
    ("DML_RECURRENT_NETWORK_DIRECTION_BACKWARD", vkdml.DML_RECURRENT_NETWORK_DIRECTION.BACKWARD),
    ("DML_EXECUTION_FLAG_DESCRIPTORS_VOLATILE", vkdml.DML_EXECUTION_FLAGS.DESCRIPTORS_VOLATILE),
    ("DML_OPERATOR_ACTIVATION_TANH", vkdml.DML_OPERATOR_TYPE.ACTIVATION_TANH), ("DML_TENSOR_DIMENSION_COUNT_MAX1", 8),
])
def test_names_as_in_c(name, member):
    assert getattr(vkdml, name) is member
    assert name in vkdml.__all__


def test_no_name_hides_another():
    assert len(set(vkdml.__all__)) == len(vkdml.__all__)
    assert not set(CONSTANTS) & set(vkdml.descs.NAMES)


@pytest.mark.parametrize(("given", "size"), [
    ((FLOAT32, 3, [1, 2, 3]), 24), ((FLOAT16, 3, [1, 1, 3]), 8), ((INT8, 1, [5]), 8), ((UINT64, 2, [2, 2]), 32),
    ((FLOAT32, 2, [4, 3], [16, 1]), 204), ((FLOAT32, 2, [4, 3], [0, 0]), 4),
])
def test_sizes_of_tensors(given, size):
    """As DirectML's page on DML_BUFFER_TENSOR_DESC computes them."""
    assert vkdml.DMLCalcBufferTensorSize(*given) == size


@pytest.mark.parametrize(("given", "message"), [
    ((0, 1, [1]), "dataType: found 0; expected a DML_TENSOR_DATA_TYPE but UNKNOWN"),
    ((FLOAT32, 2, [1]), "sizes: found 1 numbers; expected 2, the dimensionCount"),
    ((FLOAT32, 1, [1], [1, 1]), "strides: found 2 numbers; expected 1, the dimensionCount"),
    ((FLOAT32, 1, [0]), "sizes: found"), ((FLOAT32, 1, [1], [-1]), "strides: found"),
])
def test_wrong_tensors(given, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"DMLCalcBufferTensorSize: {message}"):
        vkdml.DMLCalcBufferTensorSize(*given)


def test_a_tensors_fields_have_names():
    """By position they would be taken in another order than C's."""
    with pytest.raises(TypeError):
        vkdml.DML_BUFFER_TENSOR_DESC(FLOAT32, [1, 2])
