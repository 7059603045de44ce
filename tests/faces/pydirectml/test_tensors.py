"""PyDirectML's tensors: what describes them, and data as they lie in memory."""

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from tests.faces.pydirectml.support import (
    FLOAT16,
    FLOAT32,
    FORWARD,
    OWNED,
    TANH,
    UINT32,
    B,
    H,
    I,
    T,
    arrays_of,
    close,
    numbers,
    refer,
)

ALL_NAMED = {"data_type": FLOAT16, "flags": OWNED, "sizes": [2, 3], "strides": [4, 1], "total_tensor_size_in_bytes": 24,
             "guaranteed_base_offset_alignment": 16}


@pytest.mark.parametrize(("desc", "expected"), [
    (dml.TensorDesc(FLOAT32, [2, 3, 5]), (FLOAT32, 0, [2, 3, 5], None, 120, 0)),
    (dml.TensorDesc(FLOAT32, (2, 3, 5), dml.TensorPolicy.default), (FLOAT32, 0, [2, 3, 5], None, 120, 0)),
    (dml.TensorDesc(sizes=[2, 3, 5, 7], data_type=FLOAT32, tensor_policy=dml.TensorPolicy.interleaved_channel),
     (FLOAT32, 0, [2, 3, 5, 7], [105, 1, 21, 3], 840, 0)),
    (dml.TensorDesc(FLOAT16, OWNED, np.array([3]), dml.TensorPolicy.interleaved_channel), (FLOAT16, 1, [3], [1], 8, 0)),
    (dml.TensorDesc(FLOAT16, OWNED, dml.Dimensions([3, 1])), (FLOAT16, 1, [3, 1], None, 8, 0)),
    (dml.TensorDesc(FLOAT32, [1, 8, 28, 28], [8, 1, 0, 0]), (FLOAT32, 0, [1, 8, 28, 28], [8, 1, 0, 0], 32, 0)),
    (dml.TensorDesc(UINT32, [2, 2], None), (UINT32, 0, [2, 2], None, 16, 0)),
    (dml.TensorDesc(FLOAT32, [2, 2], strides=[1, 2]), (FLOAT32, 0, [2, 2], [1, 2], 16, 0)),
    (dml.TensorDesc(**ALL_NAMED), (FLOAT16, 1, [2, 3], [4, 1], 24, 16)),
    (dml.TensorDesc(*ALL_NAMED.values()), (FLOAT16, 1, [2, 3], [4, 1], 24, 16)),
])
def test_tensor_descs(desc, expected):
    found = (desc.data_type, desc.flags, desc.sizes, desc.strides, desc.total_tensor_size_in_bytes,
             desc.guaranteed_base_offset_alignment)
    assert found == expected
    sizes = ",".join(map(str, desc.sizes))
    assert repr(desc) == f"dml.TensorDesc of type {desc.data_type.value} and shape [{sizes}] with flags {int(desc.flags)}"
    for name in ("sizes", "data_type", "strides"):
        with pytest.raises(AttributeError):
            setattr(desc, name, None)


def test_tensor_data():
    data = dml.TensorData([[1, 2], [3, 4]])
    assert isinstance(data, dml.TensorData)
    assert memoryview(data).format == "f"
    np.testing.assert_array_equal(np.array(data, np.float64), [[1, 2], [3, 4]])


def test_an_odd_number_of_halves(graph):
    """Their memory is rounded up to 4 bytes; data may fill it or not."""
    for data in (numbers(3), [*numbers(3), 9.0]):
        given = graph.input(np.array(data), dml.TensorDesc(FLOAT16, [3]))
        (result,) = graph.compute(dml.activation_identity(given))
        np.testing.assert_array_equal(result, numbers(3).astype(np.float16))


def test_strides_of_inputs(graph):
    """Data come as they lie in memory."""
    arrays = {argument: arrays_of("rnn")[argument] for argument in ("input", "weight", "recurrence", "bias")}
    arrays["hidden_init"] = np.broadcast_to(numbers(1, 1, H), (1, B, H))
    interleaved = dml.TensorDesc(FLOAT32, [1, T, B, I], dml.TensorPolicy.interleaved_channel)
    assert interleaved.strides == [T * B * I, 1, I * T, T]
    inputs = {
        "input": graph.input(arrays["input"].transpose(1, 2, 0), interleaved),
        "weight": graph.input(arrays["weight"][0].T, dml.TensorDesc(FLOAT32, [1, 1, H, I], [0, 0, 1, H])),
        "hidden_init": graph.input(arrays["hidden_init"][0, 0], dml.TensorDesc(FLOAT32, [1, 1, B, H], [0, 0, 0, 1])),
        "recurrence": graph.input(np.pad(arrays["recurrence"][0], ((0, 0), (0, 2))).reshape(-1)[:-2],
                                  dml.TensorDesc(FLOAT32, [1, 1, H, H], [0, 0, H + 2, 1])),
        "bias": graph.input(np.append(arrays["bias"], [9, 9]),  # more memory than it needs
                            dml.TensorDesc(FLOAT32, dml.TensorFlags.NONE, [1, 1, 1, 2 * H], None, 8 * H + 8, 0)),
    }
    outputs = dml.rnn(**inputs, activation_descs=[TANH], direction=FORWARD, output_options=dml.OutputOptions.Both)
    assert outputs.sequence.get_output_desc().strides is None
    close(graph.compute(outputs.sequence)[0], refer("rnn", arrays)[0])


def test_strides_of_outputs(graph):
    x = numbers(3, 4)
    relu = dml.activation_relu(graph.input(x))
    transposed = dml.reinterpret(relu, FLOAT32, [4, 3], [1, 4])
    every_other = dml.reinterpret(relu, FLOAT32, [3, 2], [4, 2])
    results = graph.compute(transposed, every_other, dml.activation_identity(every_other))
    assert results[0].strides == (4, 16)
    for result, expected in zip(results, (x.T, x[:, ::2], x[:, ::2])):
        close(result, np.maximum(expected, 0))


def test_integers_of_other_types_are_reinterpreted(graph):
    arrays = arrays_of("rnn")
    lengths = graph.input(arrays.pop("sequence_lengths"), dml.TensorDesc(dml.TensorDataType.INT32, [B]))
    sequence = dml.rnn(**graph.inputs(arrays), sequence_lengths=dml.reinterpret(lengths, UINT32, [1, 1, 1, B], [0, 0, 0, 1]),
                       activation_descs=[TANH], direction=FORWARD, output_options=dml.OutputOptions.Both).sequence
    close(graph.compute(sequence)[0], refer("rnn", arrays | {"sequence_lengths": np.array([T, 0, 2])})[0])


@pytest.mark.parametrize(("arguments", "message"), [
    (([1], FLOAT32), r"TensorDesc: found \(list, DML_TENSOR_DATA_TYPE\); expected \(data_type, sizes, tensor_policy\) or"),
    ((FLOAT32,), "TensorDesc: found"),
    ((FLOAT32, OWNED), "TensorDesc: found"),
    ((FLOAT32, OWNED, [1], [1]), "TensorDesc: found"),
    ((1, [1]), "TensorDesc: found"),
    ((FLOAT32, [1], [1], [1]), "TensorDesc: found"),
    ((FLOAT32, [0, 1]), r"TensorDesc.sizes: found \[0, 1\]; expected whole numbers from 1"),
    ((FLOAT32, [1.5]), "TensorDesc.sizes: found"),
    ((FLOAT32, []), "TensorDesc.DimensionCount: found 0"),
    ((FLOAT32, [1] * 9), "TensorDesc.DimensionCount: found 9"),
    ((FLOAT32, [2, 2], [1]), "TensorDesc.Strides: found 1 strides; expected 2"),
    ((FLOAT32, [2, 2], [-1, 1]), "TensorDesc.Strides: found"),
    ((dml.TensorDataType.UNKNOWN, [2]), "TensorDesc.DataType: found UNKNOWN"),
    ((FLOAT32, OWNED, [2, 2], None, 12, 0), "TensorDesc.TotalTensorSizeInBytes: found 12; expected a multiple of 4, at least 16"),
    ((FLOAT32, OWNED, [2, 2], None, 16, 3), "TensorDesc.GuaranteedBaseOffsetAlignment: found 3"),
])
def test_wrong_tensor_descs(arguments, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        dml.TensorDesc(*arguments)


def test_a_name_given_twice_is_no_tensor_desc():
    with pytest.raises(vkdml.InvalidArgumentError, match="TensorDesc: found .*sizes: list"):
        dml.TensorDesc(FLOAT32, [1], sizes=[1])
    with pytest.raises(vkdml.InvalidArgumentError, match="TensorDesc: found .*shape: list"):
        dml.TensorDesc(FLOAT32, shape=[1])
