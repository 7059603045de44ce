"""The cells that compute gradients, in every schedule of CPU drivers' and GPUs' kernels, against the float64 reference."""

from itertools import product

import numpy as np
import pytest

from vkdml.engine.trust import self_test
from vkdml.engine.trust.trial import Run, Trial, forward_problem, random_memory
from vkdml.operators import cells, reference
from vkdml.operators.activations import BY_ONNX_NAME, ParametrizedActivation
from vkdml.operators.correctness import differences
from vkdml.operators.element_types import FLOAT32
from vkdml.operators.problem import problem_of
from vkdml.planning.plan import plan
from vkdml_lab.suite.support import SCHEDULES, options
from vkdml_lab.suite.test_gpu_kernels import WAYS as ON_GPUS

CELLS = [cell for cell in cells.ALL if cell.desc is None]
# These cells have no fused input and, but for the LSTM, no weights in private memory
ON_CPUS = [name for name, forced in SCHEDULES.items() if not (forced.fused or forced.resident or forced.lanes is False)]


def computed(device, problem, memory, way):
    forced = ON_GPUS[way].options(problem, device.info) if way in ON_GPUS else options(device, way)
    trial = Trial(device.gpu, problem, memory)
    Run(trial, plan(problem, device.info, forced)).execute()
    return trial.outputs()


def ragged(cell):
    """Rows of all lengths, units that are no whole workgroups, both directions at once."""
    sizes = {"T": 5, "B": 5, "I": 6, "H": 37, "D": 2}
    return forward_problem(cell, FLOAT32, sizes, cell.tensors, {}, (False, True))


def behind(first, ways):
    """All ways with all cells, the first of them first. Each way is tried with forward cells, whose kernels have the same loop."""
    return [*first, *(pair for pair in product(ways, CELLS) if pair not in first)]


@pytest.mark.family("each way with each cell", first=3)
@pytest.mark.parametrize(("way", "cell"), behind([
    ("chunked", cells.LSTM_BACKWARD), ("lanes", cells.GRU_BACKWARD), ("stepped", cells.RNN_BACKWARD)], ON_CPUS), ids=lambda one: getattr(one, "name", one))
def test_right_as_on_cpus(device, way, cell):
    problem = ragged(cell)
    memory = random_memory(problem)
    assert not differences(problem, memory | computed(device, problem, memory, way))


@pytest.mark.family("each way with each cell", first=4)
@pytest.mark.parametrize(("way", "cell"), behind([
    ("persistent, in chunks", cells.LSTM_TRAINING), ("sequence, 4 rows", cells.RNN_BACKWARD), ("stepped, in chunks", cells.GRU_BACKWARD),
    ("persistent, shared", cells.LSTM_BACKWARD)], list(ON_GPUS)[1:]), ids=lambda one: getattr(one, "name", one))
def test_right_and_of_the_same_bits_as_on_gpus(device, way, cell):
    problem = ragged(cell)
    memory = random_memory(problem)
    first, other = (computed(device, problem, memory, one) for one in (next(iter(ON_GPUS)), way))
    assert not differences(problem, memory | first)
    for field, bits in first.items():
        np.testing.assert_array_equal(bits, other[field], field)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_wrong_word_is_seen(device, cell):
    """In each vector of H numbers that a step stores, and in each output."""
    problem = forward_problem(cell, FLOAT32, {"T": 3, "B": 2, "I": 5, "H": 4, "D": 1}, cell.required + tuple(cell.outputs), {})
    memory = random_memory(problem)
    found = computed(device, problem, memory, "default")
    assert not differences(problem, memory | found)
    for field in cell.outputs:
        for place in range(0, found[field].size // 4, 4):
            wrong = found[field].view(np.float32).copy()
            wrong[place] += 1e-3
            assert differences(problem, memory | found | {field: wrong.view(np.uint8)}), (field, place)


def test_relu_has_no_slope_below_zero():
    relu = [ParametrizedActivation(BY_ONNX_NAME["relu"])]
    problem = problem_of(cells.RNN_BACKWARD, FLOAT32, {"T": 1, "B": 1, "I": 1, "H": 2, "D": 1}, cells.RNN_BACKWARD.required, relu)
    found = reference.run(problem, {"InputTensor": np.ones(1), "WeightTensor": np.array([2.0, -2.0]),
                                    "RecurrenceTensor": np.zeros(4), "SavedTensor": np.array([3.0, 5.0])})
    np.testing.assert_array_equal(found["OutputSequenceTensor"].ravel(), [3.0, 0.0])


# A cell, a file of shaders, and a mistake in its equations; first those whose kernels compile sooner
MISTAKES = [
    ("GRU_BACKWARD", "cells/gru_backward.glsl", "unit, dh * z)", "unit, dh)"),
    ("LSTM_TRAINING", "cells/lstm.glsl", "words[1] = c;", "words[1] = 0.999 * c;"),
    ("LSTM_BACKWARD", "cells/lstm_backward.glsl", "unit, dc * f)", "unit, dc)"),
    ("RNN_BACKWARD", "cells/rnn_backward.glsl", "recurrent[0])", "0.999 * recurrent[0])"),
    ("LSTM_BACKWARD", "cells/lstm_backward.glsl", "words[1] = dh * y", "words[1] = dh * g"),
    ("LSTM_BACKWARD", "cells/lstm_backward.glsl", "words[2] = dc * c_before", "words[2] = dc * i"),
    ("LSTM_BACKWARD", "cells/lstm_backward.glsl", "words[3] = dc * i", "words[3] = dc * f"),
    ("LSTM_BACKWARD", "cells/lstm_backward.glsl", "return dc * g * slope(F, i)", "return dc * g * slope(F, o)"),
    ("GRU_BACKWARD", "cells/gru_backward.glsl", "load_saved(1, unit) - n", "n - load_saved(1, unit)"),
    ("GRU_BACKWARD", "cells/gru_backward.glsl", "words[2] = dn * x[0]", "words[2] = dn * n"),
    ("GRU_BACKWARD", "cells/gru_backward.glsl", "words[3] = dn;", "words[3] = dn * reset;"),
    ("GRU_BACKWARD", "cells/gru_backward.glsl", "return dn * reset", "return dn"),
]


@pytest.mark.family("mistakes", first=2)
@pytest.mark.parametrize(("kind", "file", "old", "new"), MISTAKES)
def test_a_mistake_is_seen(device, mistaken, kind, file, old, new):
    problem = self_test.problem_of(kind, FLOAT32)
    made = next(self_test.plans_of(device.info, problem))
    mistaken(next(dispatch.kernel for dispatch in made.execute if "projection" not in dispatch.kernel), file, old, new)
    memory = random_memory(problem)
    trial = Trial(device.gpu, problem, memory)
    Run(trial, made).execute()
    assert differences(problem, memory | trial.outputs())
