"""What the tests of PyDirectML's surface share: graphs, a cell's arrays, comparison with the reference, and refusals."""

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from vkdml.operators import reference
from vkdml_lab.suite.support import TOLERANCES

T, B, I, H = 5, 3, 3, 4
FLOAT32, FLOAT16, UINT32 = dml.TensorDataType.FLOAT32, dml.TensorDataType.FLOAT16, dml.TensorDataType.UINT32
FORWARD, BACKWARD, BIDIRECTIONAL = dml.RecurrentNetworkDirection
DIRECTIONS = {FORWARD: "forward", BACKWARD: "reverse", BIDIRECTIONAL: "bidirectional"}
OWNED = dml.TensorFlags.OWNED_BY_DML
SIGMOID, TANH = dml.FusedActivation(dml.OperatorType.ACTIVATION_SIGMOID), dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH)

# gates and activations of a direction, and the outputs' names
CELLS = {"gru": (3, [SIGMOID, TANH], ("sequence", "single")),
         "lstm": (4, [SIGMOID, TANH, TANH], ("sequence", "single", "cell_single")),
         "rnn": (1, [TANH], ("sequence", "single"))}

# PyDirectML's arguments in the reference's words
WORDS = {"input": "x", "weight": "w", "recurrence": "r", "bias": "b", "hidden_init": "initial_h", "cell_mem_init": "initial_c",
         "peephole": "p", "sequence_lengths": "sequence_lens"}


def close(result, expected, element="float32"):
    rtol, atol = TOLERANCES[element]
    assert result.dtype == element
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=rtol, atol=atol)


def wrong(action, message, operator=None):
    with pytest.raises(vkdml.InvalidArgumentError, match=message) as raised:
        action()
    assert operator is None or raised.value.operator == operator


def numbers(*shape, seed=0):
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.5).astype(np.float32)


def arrays_of(cell, d=1):
    """The reference's arrays by PyDirectML's arguments."""
    gates = CELLS[cell][0]
    arrays = {"input": numbers(T, B, I), "weight": numbers(d, gates * H, I), "recurrence": numbers(d, gates * H, H),
              "bias": numbers(d, 2 * gates * H), "hidden_init": numbers(d, B, H), "sequence_lengths": np.array([T, 0, 2])}
    if cell == "lstm":
        arrays |= {"cell_mem_init": numbers(d, B, H, seed=1), "peephole": numbers(d, 3 * H)}
    return arrays


def refer(cell, arrays, **attributes):
    return getattr(reference, cell)(**{WORDS[argument]: array for argument, array in arrays.items()}, **attributes)


class Graph:
    """A builder with its bindings."""

    def __init__(self):
        self.device = dml.Device()
        self.builder = dml.GraphBuilder(self.device)
        self.bindings = []

    def desc(self, array, data_type=FLOAT32, flags=dml.TensorFlags.NONE):
        whole = np.issubdtype(array.dtype, np.integer)
        return dml.TensorDesc(UINT32 if whole else data_type, flags, [1] * (4 - array.ndim) + list(array.shape))

    def input(self, array, desc=None):
        expression = dml.input_tensor(self.builder, len(self.bindings), desc or self.desc(array))
        self.bindings.append(dml.Binding(expression, array))
        return expression

    def inputs(self, arrays, **options):
        return {argument: self.input(array, self.desc(array, **options)) for argument, array in arrays.items()}

    def build(self, *outputs):
        return self.builder.build(dml.ExecutionFlags.NONE, list(outputs))

    def compute(self, *outputs):
        return self.device.compute(self.build(*outputs), self.bindings, list(outputs))
