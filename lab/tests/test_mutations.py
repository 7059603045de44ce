"""Tests that the suite finds mistakes that a device could make: each row is a mistake, and the suite's problems must show it.

Mistakes are wrong variants of the float64 reference, whose results replace a device's. No device is needed.
"""

import inspect
import math
import types
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import onnx
import pytest

from vkdml.operators import activations, reference
from vkdml.operators.correctness import differences, with_sequence
from vkdml_lab.suite import sharpest, test_onnxruntime, test_reference
from vkdml_lab.suite.support import ATOL, CELLS, DTYPES, RTOL, check, random_case

ENOUGH = 3  # problems that must catch a mistake in each cell; a single one could be an accident
ALL = "GRU LSTM RNN"
ACTIVATIONS = {row.operator_type.name.removeprefix("ACTIVATION_"): row for row in activations.BY_DESC.values()}


def seeds_of(test):
    (seeds,) = (mark.args[1] for mark in test.pytestmark if mark.name == "parametrize")
    return seeds


SEEDS = {cell.name: [seed for seed in seeds_of(test_reference.test_random_problem) if CELLS[seed % len(CELLS)] is cell]
         for cell in CELLS}
cached_case = cache(random_case)


def outputs(run, case):
    """Compute a case with `run`, a variant of reference.run. Returns its outputs by DirectML's names, in the case's type."""
    checked, dtype = case.problem, DTYPES[case.element.name]
    with np.errstate(over="ignore"):
        return {field: result.astype(dtype) for field, result in run(checked, case.arrays).items() if checked.has(field)}


def passes(run, seed):
    case = cached_case(seed)
    results = outputs(run, case)
    try:
        check(case, results)
    except AssertionError:
        return False
    return True


def assert_caught(catches, seeds, test=None):
    """Check that catches(seed) is true for ENOUGH seeds. test: if given, `make test` must run it with the first such seed."""
    found = list(islice(filter(catches, seeds), ENOUGH))
    assert len(found) == ENOUGH, f"{len(found)} of {len(seeds)} problems catch this mistake"
    chosen = sharpest.SEEDS[test.__name__] if test else seeds
    assert found[0] in chosen, f"seed {found[0]} catches this mistake, and none that `make test` runs: python -m lab.tests.choosing --write"


def mutated(right, function, changes):
    """Return a copy of the module `right` in which the text of one function is changed. changes: new text by old text."""
    before = after = inspect.getsource(getattr(right, function))
    for old, new in changes.items():
        assert old in after, f"{function} has no {old!r} any more, so this row changes nothing"
        after = after.replace(old, new)
    wrong = types.ModuleType(right.__name__)
    wrong.__package__ = right.__package__
    exec(inspect.getsource(right).replace(before, after), vars(wrong))
    return wrong


@pytest.mark.thorough
@pytest.mark.parametrize("cell", SEEDS)
def test_no_mistake(cell):
    """All problems pass without a planted mistake. So if one fails in the tests below, the mistake is the reason."""
    assert all(passes(reference.run, seed) for seed in SEEDS[cell])


# Each row: the mistake, its cells, the function of reference.py, and the changes of its text
EQUATIONS = [
    # Sequences
    ("sequence lengths ignored", ALL, "run", {"range(lengths[row])": "range(t)"}),
    ("the first row's length for all", ALL, "run", {"range(lengths[row])": "range(lengths[0])"}),
    ("one step too few", ALL, "run", {"range(lengths[row])": "range(lengths[row] - 1)"}),
    ("only the first 8 steps", ALL, "run", {"range(lengths[row])": "range(min(lengths[row], 8))"}),
    ("only the first 8 rows", ALL, "run", {"range(b)": "range(min(b, 8))"}),
    ("backward from T, not from the row's end", ALL, "run", {"reversed(positions)": "reversed(range(t))"}),
    ("backward over the last steps of T", ALL, "run", {"reversed(positions)": "reversed(range(t - lengths[row], t))"}),
    ("backward runs forward", ALL, "run", {"reversed(positions)": "positions"}),
    ("forward runs backward", ALL, "run", {"reversed(positions) if reverse else positions": "reversed(positions)"}),
    ("second direction runs forward", ALL, "run", {"if reverse else": "if reverse and direction == 0 else"}),
    ("backward writes Y in running order", ALL, "run",
     {"sequence[position,": "sequence[lengths[row] - 1 - position if reverse else position,"}),
    ("Y not written past the length", ALL, "run",
     {"np.zeros((t, problem.directions, b, problem.loop.words * h))": "np.full((t, problem.directions, b, h), np.nan)"}),
    ("Y repeats the last state past the length", ALL, "run",
     {"if lengths": "sequence[lengths[row]:, direction, row] = states[0]\n            if lengths"}),
    ("Y holds rows before directions", ALL, "run", {"[sequence,": "[sequence.swapaxes(1, 2).reshape(sequence.shape),"}),
    ("Y_h taken at T", ALL, "run", {"= results[-len(last):]\n": "= [sequence[-1, direction, row], *states[1:]]\n"}),
    ("backward: Y_h taken at the row's end", ALL, "run",
     {"= results[-len(last):]\n": "= [sequence[lengths[row] - 1, direction, row], *states[1:]]\n"}),
    ("Y_h without steps is initial_h", ALL, "run", {"if lengths[row] > 0": "if True"}),
    ("Y_c without steps is initial_c", "LSTM", "run",
     {"if lengths": "last[1, 0, direction, row] = states[1]\n            if lengths"}),
    ("Y_h and Y_c exchanged", "LSTM", "run", {"= results[-len(last):]\n": "= states[::-1]\n"}),
    ("Y_c is h", "LSTM", "run", {"= results[-len(last):]\n": "= states[0]\n"}),
    ("Y is c", "LSTM", "run", {"results[:problem.loop.words]": "results[1:2]"}),
    ("directions exchanged in Y_h", ALL, "run",
     {"direction, row] = results": "problem.directions - 1 - direction, row] = results"}),
    ("every step takes the first input", ALL, "run", {"x[position, row]": "x[0, row]"}),
    ("every row takes the first row's input", ALL, "run", {"x[position, row]": "x[position, 0]"}),
    # States
    ("initial_h ignored", ALL, "initial_states", {'arrays, "HiddenInitTensor"': '{}, "HiddenInitTensor"'}),
    ("initial_c ignored", "LSTM", "initial_states", {"arrays, field": "{**arrays, 'CellMemInitTensor': None}, field"}),
    ("initial_h and initial_c exchanged", "LSTM", "initial_states", {"[sources, *beside]": "[*beside, sources]"}),
    ("second direction takes the first's initial states", ALL, "run", {"initial[direction, row]": "initial[0, row]"}),
    ("every row takes the first row's initial states", ALL, "run", {"initial[direction, row]": "initial[direction, 0]"}),
    ("second direction goes on from the first's last states", ALL, "run",
     {"initial_states(problem, arrays)]":
      "initial_states(problem, arrays)] if direction == 0 else list(last[:, 0, 0, row])"}),
    ("states go on from row to row", ALL, "run",
     {"initial_states(problem, arrays)]": "initial_states(problem, arrays)] if row == 0 else states"}),
    ("h not carried", ALL, "run", {"*states, *parts": "0 * states[0], *states[1:], *parts"}),
    ("c not carried", "LSTM", "lstm_step", {"forget * c": "0 * c"}),
    ("states carried in float16", ALL, "run",
     {"results = step(":
      "results = (lambda *given: [state.astype(np.float16).astype(float) for state in step(*given)])("}),
    # Weights
    ("second direction takes the first's W", ALL, "direction_weights",
     {'"WeightTensor", np.empty(0))[0, direction]': '"WeightTensor", np.empty(0))[0, 0]'}),
    ("second direction takes the first's R", ALL, "direction_weights",
     {'"RecurrenceTensor", np.empty(0))[0, direction]': '"RecurrenceTensor", np.empty(0))[0, 0]'}),
    ("second direction takes the first's B", ALL, "direction_weights", {"biases[0, 0, direction]": "biases[0, 0, 0]"}),
    ("second direction takes the first's P", "LSTM", "direction_weights", {"peepholes[0, 0, direction]": "peepholes[0, 0, 0]"}),
    ("directions exchanged in W and R", ALL, "direction_weights", {"[0, direction]": "[0, problem.directions - 1 - direction]"}),
    ("gate order r z h", "GRU", "direction_weights", {"[w, r, wb, rb, ": "[*(array[[1, 0, 2]] for array in (w, r, wb, rb)), "}),
    ("gate order i f o c", "LSTM", "direction_weights", {"[w, r, wb, rb, ": "[*(array[[0, 2, 1, 3]] for array in (w, r, wb, rb)), "}),
    ("gate order i f c o", "LSTM", "direction_weights", {"[w, r, wb, rb, ": "[*(array[[0, 3, 1, 2]] for array in (w, r, wb, rb)), "}),
    ("gates of a unit together in W", "GRU LSTM", "direction_weights",
     {"reshape(gates, h, problem.input_size)": "reshape(h, gates, problem.input_size).swapaxes(0, 1)"}),
    ("Wb and Rb of a gate together", "GRU LSTM", "direction_weights", {"reshape(2, gates, h)": "reshape(gates, 2, h).swapaxes(0, 1)"}),
    ("Wb of both directions before Rb", ALL, "direction_weights",
     {"biases[0, 0, direction].reshape(2, gates, h)": "biases[0, 0].reshape(2, -1, gates, h)[:, direction]"}),
    ("Wb and Rb exchanged", "GRU", "direction_weights", {"wb, rb =": "rb, wb ="}),  # other cells add them up
    ("Wb forgotten", ALL, "direction_weights", {"r, wb, rb, p": "r, 0 * wb, rb, p"}),
    ("Rb forgotten", ALL, "direction_weights", {"r, wb, rb, p": "r, wb, 0 * rb, p"}),
    ("R transposed", ALL, "direction_weights", {"[w, r,": "[w, r.swapaxes(1, 2),"}),
    ("R in float16", ALL, "direction_weights", {"[w, r,": "[w, r.astype(np.float16),"}),
    ("last input left out", ALL, "direction_weights", {"[w,": "[w * (np.arange(problem.input_size) < problem.input_size - 1),"}),
    ("units past a multiple of 4 left out", ALL, "direction_weights", {"[w, r,": "[w, r * (np.arange(h) < h // 4 * 4),"}),
    # GRU
    ("linear_before_reset ignored", "GRU", "gru_step", {'if problem.flags["LinearBeforeReset"]': "if False"}),
    ("linear_before_reset always", "GRU", "gru_step", {'if problem.flags["LinearBeforeReset"]': "if True"}),
    ("linear_before_reset: Rb outside of the product", "GRU", "gru_step", {"(r[2] @ h + rb[2])": "(r[2] @ h) + rb[2]"}),
    ("linear_before_reset: Wb inside of the product", "GRU", "gru_step", {"wb[2] + reset * (r[2]": "reset * (wb[2] + r[2]"}),
    ("Rb reset with h", "GRU", "gru_step", {"r[2] @ (reset * h) + rb[2]": "r[2] @ (reset * h) + reset * rb[2]"}),
    ("reset forgotten", "GRU", "gru_step", {"reset *": "1 *"}),
    ("reset after the candidate's activation", "GRU", "gru_step",
     {"reset *": "1 *", "(1 - z) * candidate": "(1 - z) * reset * candidate"}),
    ("z in the place of reset", "GRU", "gru_step", {"reset *": "z *"}),
    ("z and 1 - z exchanged", "GRU", "gru_step", {"(1 - z) * candidate + z * h": "z * candidate + (1 - z) * h"}),
    ("h reset where z keeps it", "GRU", "gru_step", {"z * h]": "z * reset * h]"}),
    ("g taken as f", "GRU", "gru_step", {"direction, 1": "direction, 0"}),
    ("f and g exchanged", "GRU", "gru_step", {"f, g": "g, f"}),
    # LSTM
    ("peepholes forgotten", "LSTM", "lstm_step", {'problem.has("PeepholeTensor")': "False"}),
    ("peephole of the input gate forgotten", "LSTM", "lstm_step", {"p[0] * c": "0 * c"}),
    ("peephole of the output gate forgotten", "LSTM", "lstm_step", {"p[1] * c": "0 * c"}),
    ("peephole of the forget gate forgotten", "LSTM", "lstm_step", {"p[2] * c": "0 * c"}),
    ("peephole of the output gate on the old c", "LSTM", "lstm_step",
     {"c = forget *": "old, c = c, forget *", "p[1] * c": "p[1] * old"}),
    ("peephole of the output gate after clip", "LSTM", "lstm_step",
     {"gates[1] + p[1] * c if has_peephole else gates[1])": "gates[1]) + (p[1] * c if has_peephole else 0)"}),
    ("peepholes on h", "LSTM", "lstm_step", {"p[0] * c": "p[0] * h", "p[1] * c": "p[1] * h", "p[2] * c": "p[2] * h"}),
    ("peephole order i f o", "LSTM", "direction_weights", {"peepholes, h)": "peepholes, h)[[0, 2, 1]]"}),
    ("input_forget ignored", "LSTM", "lstm_step", {'if problem.flags["CoupleInputForget"]': "if False"}),
    ("input_forget always", "LSTM", "lstm_step", {'if problem.flags["CoupleInputForget"]': "if True"}),
    ("input_forget: f = i", "LSTM", "lstm_step", {"1 - i": "i"}),
    ("input_forget: f of the negated input gate", "LSTM", "lstm_step", {"1 - i": "f(_clip(problem, -gates[0]))"}),
    ("input_forget: i = 1 - f", "LSTM", "lstm_step",
     {"1 - i": "f(_clip(problem, gates[2]))", "+ i *": '+ (1 - forget if problem.flags["CoupleInputForget"] else i) *'}),
    ("1 added to the forget gate's bias", "LSTM", "lstm_step", {"_clip(problem, gates[2])": "_clip(problem, gates[2] + 1)"}),
    ("h(c) forgotten", "LSTM", "lstm_step", {"h_activation(c)": "c"}),
    ("h(c) taken as g", "LSTM", "lstm_step", {"h_activation(c)": "g(c)"}),
    ("f and h exchanged", "LSTM", "lstm_step", {"f, g, h_activation": "h_activation, g, f"}),
    ("Y_c is h(c)", "LSTM", "lstm_step", {"h_activation(c), c]": "h_activation(c), h_activation(c)]"}),
    ("candidate through f", "LSTM", "lstm_step", {"* g(": "* f("}),
    ("output gate through g", "LSTM", "lstm_step", {"o = f(": "o = g("}),
    # Clip
    ("clip forgotten", ALL, "_clip", {"x if problem.clip is None": "x if True"}),
    ("clip from above only", ALL, "_clip", {"-problem.clip": "-np.inf"}),
    ("clip from below only", ALL, "_clip", {", problem.clip": ", np.inf"}),
    ("clip of the input's part only", "RNN", "rnn_step",
     {"_clip(problem, w[0] @ x + r[0] @ h": "r[0] @ h + _clip(problem, w[0] @ x"}),
    ("z not clipped", "GRU", "gru_step", {"z = f(_clip(problem, ": "z = f(("}),
    ("reset not clipped", "GRU", "gru_step", {"reset = f(_clip(problem, ": "reset = f(("}),
    ("candidate not clipped", "GRU", "gru_step", {"g(_clip(problem, ": "g(("}),
    ("candidate not clipped", "LSTM", "lstm_step", {"g(_clip(problem, ": "g(("}),
    ("input gate not clipped", "LSTM", "lstm_step", {"i = f(_clip(problem, ": "i = f(("}),
    ("forget gate not clipped", "LSTM", "lstm_step", {"else f(_clip(problem, ": "else f(("}),
    ("output gate not clipped", "LSTM", "lstm_step", {"o = f(_clip(problem, ": "o = f(("}),
    ("c clipped too", "LSTM", "lstm_step", {"c = forget *": "c = _clip(problem, forget *", "gates[3]))": "gates[3])))"}),
    ("c clipped for h", "LSTM", "lstm_step", {"h_activation(c)": "h_activation(_clip(problem, c))"}),
    *((f"clip after {f}", cell, f"{cell.lower()}_step", {f"{f}(_clip(problem, ": f"_clip(problem, {f}("})
      for cell, f in [("GRU", "f"), ("GRU", "g"), ("LSTM", "f"), ("LSTM", "g"), ("RNN", "f")]),
    # Activations of two directions
    *(("second direction takes the first's activations", cell, f"{cell.lower()}_step",
       {"activation(direction, ": "activation(0, "}) for cell in ALL.split()),
    *(("directions exchanged in the activations", cell, f"{cell.lower()}_step",
       {"activation(direction, ": "activation(problem.directions - 1 - direction, "}) for cell in ALL.split()),
]


WRONG_EQUATIONS = pytest.mark.parametrize(("cell", "function", "changes"), [
    pytest.param(cell, function, changes, id=f"{cell}: {mistake}")
    for mistake, cells, function, changes in EQUATIONS for cell in cells.split()])


@pytest.mark.family("wrong equations", first=40)
@WRONG_EQUATIONS
def test_wrong_equation(cell, function, changes):
    wrong = mutated(reference, function, changes)
    assert_caught(lambda seed: not passes(wrong.run, seed), SEEDS[cell], test_reference.test_random_problem)


def is_verified(run, seed):
    """Return whether the check of Device(verify=...) accepts the results that `run` computes for a seed's problem."""
    case = cached_case(seed)
    checked = with_sequence(case.problem)
    arrays = dict(case.arrays)
    with np.errstate(over="ignore"):
        for field, result in run(checked, case.arrays).items():
            if checked.has(field):
                arrays[field] = np.zeros(checked.tensor(field).size_of_elements, DTYPES[case.element.name])
                checked.tensor(field).view(arrays[field])[...] = result
    memory = {field: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for field, array in arrays.items()}
    return not differences(checked, memory)


@pytest.mark.thorough
@pytest.mark.parametrize("cell", SEEDS)
def test_the_check_of_calls_finds_no_mistake_where_there_is_none(cell):
    assert all(is_verified(reference.run, seed) for seed in SEEDS[cell])


@pytest.mark.family("wrong equations", first=40)
@WRONG_EQUATIONS
def test_the_check_of_calls_sees_wrong_equations(cell, function, changes):
    wrong = mutated(reference, function, changes)
    assert_caught(lambda seed: not is_verified(wrong.run, seed), SEEDS[cell])


# Each row: the activation, the mistake, and the wrong function
FUNCTIONS = [
    ("CELU", "alpha not in the exponent", lambda x, a, b: np.where(x < 0, a * np.expm1(x), x)),
    ("GELU", "the tanh approximation", lambda x, a, b: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ("SWISH", "the scale forgotten", lambda x, a, b: x / (1 + np.exp(-x))),
    ("HARD_SWISH", "not bounded from above", lambda x, a, b: x * np.maximum(a * x + b, 0)),
    ("HARD_SIGMOID", "not bounded from above", lambda x, a, b: np.maximum(a * x + b, 0)),
    ("HARD_SIGMOID", "not bounded from below", lambda x, a, b: np.minimum(a * x + b, 1)),
    ("LEAKY_RELU", "alpha above 0 too", lambda x, a, b: a * x),
    ("SCALED_ELU", "gamma below 0 only", lambda x, a, b: np.where(x < 0, b * a * np.expm1(x), x)),
    ("SHRINK", "bias forgotten", lambda x, a, b: np.where(np.abs(x) > b, x, 0)),
    ("SHRINK", "bias of one sign", lambda x, a, b: np.where(np.abs(x) > b, x - a, 0)),
    ("SHRINK", "threshold forgotten", lambda x, a, b: x - a * np.sign(x)),
    ("SIGMOID", "of -x", lambda x, a, b: 1 / (1 + np.exp(x))),
    ("SOFTPLUS", "not divided by the steepness", lambda x, a, b: np.logaddexp(0, a * x)),
    ("SOFTPLUS", "steepness not in the exponent", lambda x, a, b: np.logaddexp(0, x) / a),
    ("SOFTSIGN", "of x, not of its size", lambda x, a, b: x / (1 + x)),
    ("THRESHOLDED_RELU", "alpha subtracted", lambda x, a, b: np.maximum(x - a, 0)),
    ("THRESHOLDED_RELU", "threshold of the size", lambda x, a, b: np.where(np.abs(x) <= a, 0, x)),
]


def wrong_functions():
    """Yield wrong variants of each activation: its name, the mistake (such as an ignored parameter), and the wrong function."""
    for name, row in ACTIVATIONS.items():
        other = "RELU" if name == "IDENTITY" else "IDENTITY"
        yield name, f"taken as {other}", ACTIVATIONS[other].function
        if row.fields:
            yield name, f"{row.fields[0]} ignored", lambda x, a, b, right=row.function: right(x, 1.0, b)
        if len(row.fields) == 2:
            yield name, f"{row.fields[1]} ignored", lambda x, a, b, right=row.function: right(x, a, 1.0)
            yield name, "parameters exchanged", lambda x, a, b, right=row.function: right(x, b, a)


def run_with(activation, function):
    """Return a variant of reference.run that computes one activation, by its name, with another function."""
    def run(checked, arrays):
        row = replace(ACTIVATIONS[activation], function=function)
        fused = (replace(entry, activation=row) if entry.activation.desc is row.desc else entry
                 for entry in checked.activations)
        return reference.run(replace(checked, activations=tuple(fused)), arrays)

    return run


@pytest.mark.family("wrong activations", first=17)
@pytest.mark.parametrize(("activation", "function"), [
    pytest.param(name, function, id=f"{name}: {mistake}") for name, mistake, function in [*FUNCTIONS, *wrong_functions()]])
def test_wrong_activation(activation, function):
    run = run_with(activation, function)
    test = test_reference.test_random_problem
    assert_caught(lambda seed: not passes(run, seed), seeds_of(test), test)


# Mistakes that random problems are too tame for, with the test and parameters that must catch them
HUGE, SPECIAL = test_reference.test_activation, test_reference.test_special_values_propagate
EXTREMES = [
    ("ELU", "both branches computed", lambda x, a, b: (x < 0) * a * np.expm1(x) + (x >= 0) * x, HUGE, (1e4,)),
    ("CELU", "both branches computed", lambda x, a, b: (x < 0) * a * np.expm1(x / a) + (x >= 0) * x, HUGE, (1e4,)),
    ("SCALED_ELU", "both branches computed", lambda x, a, b: b * ((x < 0) * a * np.expm1(x) + (x >= 0) * x), HUGE, (1e4,)),
    ("PARAMETRIC_SOFTPLUS", "overflows", lambda x, a, b: a * np.log(1 + np.exp(b * x)), HUGE, (1e4,)),
    ("SCALED_TANH", "overflows", lambda x, a, b: a * (np.exp(2 * b * x) - 1) / (np.exp(2 * b * x) + 1), HUGE, (1e4,)),
    ("SIGMOID", "overflows", lambda x, a, b: np.exp(x) / (np.exp(x) + 1), HUGE, (1e4,)),
    ("SOFTPLUS", "overflows", lambda x, a, b: np.log(1 + np.exp(a * x)) / a, HUGE, (1e4,)),
    ("TANH", "overflows", lambda x, a, b: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1), HUGE, (1e4,)),
    ("ELU", "0 for NaN", lambda x, a, b: np.fmax(x, 0) + a * np.expm1(np.fmin(x, 0)), SPECIAL, (np.nan, None)),
    ("HARD_SIGMOID", "0 for NaN", lambda x, a, b: np.fmin(np.fmax(a * x + b, 0), 1), SPECIAL, (np.nan, None)),
    ("LEAKY_RELU", "0 for NaN", lambda x, a, b: np.fmax(x, 0) + a * np.fmin(x, 0), SPECIAL, (np.nan, None)),
    ("RELU", "0 for NaN", lambda x, a, b: np.fmax(x, 0), SPECIAL, (np.nan, None)),
    ("SHRINK", "0 for NaN", lambda x, a, b: np.where(x < -b, x + a, np.where(x > b, x - a, 0)), SPECIAL, (np.nan, None)),
    ("THRESHOLDED_RELU", "0 for NaN", lambda x, a, b: np.where(x > a, x, 0), SPECIAL, (np.nan, None)),
    ("SOFTSIGN", "1 for infinity", lambda x, a, b: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))), SPECIAL, (np.inf, None)),
]


@pytest.mark.parametrize(("activation", "function", "test", "values"), [
    pytest.param(name, *row, id=f"{name}: {mistake}") for name, mistake, *row in EXTREMES])
def test_wrong_extreme(monkeypatch, activation, function, test, values):
    desc = ACTIVATIONS[activation].desc
    monkeypatch.setattr(test_reference, "run_on_device", lambda _, case: outputs(reference.run, case))
    test(None, desc, *values)
    monkeypatch.setattr(test_reference, "run_on_device", lambda _, case: outputs(run_with(activation, function), case))
    with pytest.raises(AssertionError):
        test(None, desc, *values)


# Mistakes in reading ONNX's activation_alpha and activation_beta, as changes of the text of activations.from_onnx
LISTS = {
    "by position": {"given.pop(0)) if given": "given[i]) if i < len(given)"},
    "from the end": {"pop(0)": "pop()"},
    "the first for all": {"given.pop(0)": "given[0]"},
    "alphas and betas exchanged": {"zip(left,": "zip(left[::-1],"},
    "ignored": {"parameter(operator, *given.pop(0)) if given else default": "default"},
}


def attributes_of(node):
    """Return an ONNX node's attributes as arguments of the reference, which takes no hidden_size."""
    values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    del values["hidden_size"]
    values["direction"] = values["direction"].decode()
    if "activations" in values:
        values["activations"] = [name.decode() for name in values["activations"]]
    return values


def by_reference(node, inputs, attributes):
    arrays = {{"X": "x", "W": "w", "R": "r", "B": "b", "P": "p"}.get(name, name): array for name, array in inputs.items()}
    return getattr(reference, node.op_type.lower())(**arrays, **attributes)


def shows_wrong_lists(changes, seed):
    """Return whether a seed's random ONNX node has other results if from_onnx(), which reads its activations, has `changes`."""
    node, inputs = test_onnxruntime.random_node(seed)
    attributes = attributes_of(node)
    if "activations" not in attributes:
        return False
    lists = [attributes.get(name) for name in ("activations", "activation_alpha", "activation_beta")]
    wrong = attributes | {"activations": mutated(activations, "from_onnx", changes).from_onnx(node.op_type, *lists),
                          "activation_alpha": None, "activation_beta": None}
    pairs = zip(by_reference(node, inputs, wrong), by_reference(node, inputs, attributes))
    return not all(np.allclose(result, expected, rtol=RTOL, atol=ATOL) for result, expected in pairs)


@pytest.mark.parametrize("changes", LISTS.values(), ids=LISTS)
def test_wrong_lists(changes):
    test = test_onnxruntime.test_random_node
    assert_caught(lambda seed: shows_wrong_lists(changes, seed), seeds_of(test), test)
