"""Device(verify=...): right results never raise, whatever the problem; wrong ones do, and which calls are looked at."""

import numpy as np
import pytest

import vkdml
from vkdml.engine import compiled
from vkdml.engine.compiled import Share
from vkdml.engine.execution import Execution, Node
from vkdml.operators import element_types
from vkdml_lab.suite.support import CELLS, DTYPES, SCHEDULES, options, random_case, wild_case

pytestmark = pytest.mark.device


def run(device, case, forced=vkdml.Options()):
    problem = case.problem
    made = Execution(device.gpu, device.share, [Node(problem, {field: field for field in problem.tensors if problem.has(field)})],
                   [field for field in problem.outputs if problem.has(field)], forced)
    made.run({field: np.ascontiguousarray(array).reshape(-1) for field, array in case.arrays.items()}, {})


# Right results

@pytest.mark.family("random shapes, attributes and types", first=3)
@pytest.mark.parametrize("seed", range(80))
def test_no_false_alarm(verified, checks, seed):
    case = random_case(seed)
    run(verified, case, options(verified, list(SCHEDULES)[seed // len(CELLS) % len(SCHEDULES)], case.element))
    assert len(checks) == 1


@pytest.mark.family("random shapes, attributes and types", first=2)
@pytest.mark.parametrize("seed", range(40))
def test_no_false_alarm_where_numbers_grow(verified, checks, seed):
    """Chaotic sequences, numbers that overflow, and such at a jump of an activation: right is what no bound excludes."""
    rng = np.random.default_rng([seed, 7])
    case = wild_case(CELLS[seed % len(CELLS)], rng)
    for field in case.problem.weights:
        if field in case.arrays:
            case.arrays[field] *= case.arrays[field].dtype.type(rng.choice([2, 10, 100]))
    run(verified, case)
    assert len(checks) == 1


FUNCTIONS = {"gru": (vkdml.gru, 3), "lstm": (vkdml.lstm, 4), "rnn": (vkdml.rnn, 1)}


@pytest.mark.thorough
@pytest.mark.parametrize("element", element_types.ALL, ids=lambda element: element.name)
@pytest.mark.parametrize("activation", [None, "Relu", "ThresholdedRelu"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_false_alarm_in_a_hundred_calls(verified, name, activation, element):
    """Of lengths up to 60, with weights that make h vanish, explode or jump: two thousand calls and more in all."""
    function, gates = FUNCTIONS[name]
    rng = np.random.default_rng(gates)
    for _ in range(100):
        t, b = int(rng.integers(1, 61)), int(rng.integers(1, 4))
        x, w, r, bias, h = ((rng.standard_normal(shape) * 10 ** rng.uniform(-2, 1.5)).astype(DTYPES[element.name]) for shape in (
            (t, b, 5), (1, gates * 12, 5), (1, gates * 12, 12), (1, 2 * gates * 12), (1, b, 12)))
        activations = activation and [activation] * (1 if name == "rnn" else 2 if name == "gru" else 3)
        try:
            function(x, w, r, bias, initial_h=h, sequence_lens=rng.integers(0, t + 1, b), activations=activations,
                     direction=str(rng.choice(["forward", "reverse"])), device=verified)
        except vkdml.InvalidArgumentError as error:  # float64 says where numbers leave its range
            assert "out of range" in str(error)  # noqa: PT017


def test_special_values_are_no_mistake(verified):
    x = np.random.default_rng(0).standard_normal((4, 3, 5), np.float32)
    x[1, 0, 0], x[2, 1, 1] = np.nan, np.inf
    w, r = np.full((1, 12, 5), 0.1, np.float32), np.full((1, 12, 12), 0.1, np.float32)
    y, _ = vkdml.rnn(x, w, r, device=verified)
    assert np.isnan(y[1:, 0, 0]).all()


# Which calls

@pytest.mark.parametrize(("share", "expected"), [
    (0, []), (0.25, [0, 4, 8, 12]), (0.3, [0, 4, 7, 10, 14]), (2 / 3, [0, 2, 3, 5, 6, 8, 9, 11, 12, 14]), (1, list(range(15)))])
def test_which_calls_are_checked(share, expected):
    calls = Share(share)
    assert [call for call in range(15) if calls.has_next()] == expected


@pytest.mark.parametrize(("given", "environment", "expected"), [
    (None, "", 0.0), (None, "0.5", 0.5), (0.1, "0.5", 0.1), (0, "0.5", 0.0), (np.float32(1), "", 1.0)])
def test_the_share(monkeypatch, given, environment, expected):
    monkeypatch.setenv("VKDML_VERIFY", environment)
    assert vkdml.Device(verify=given).verify == pytest.approx(expected)


@pytest.mark.parametrize(("given", "environment", "said"), [
    (2, "", "verify: found 2; expected a share of the calls, from 0 to 1"), ("half", "", "verify: found 'half'"),
    (-0.1, "", "verify: found -0.1"), (np.nan, "", "verify: found nan"), (None, "yes", "VKDML_VERIFY: found 'yes'"),
    ([], "", r"verify: found \[\]")])
def test_shares_that_are_none(monkeypatch, given, environment, said):
    monkeypatch.setenv("VKDML_VERIFY", environment)
    with pytest.raises(vkdml.InvalidArgumentError, match=said):
        vkdml.Device(verify=given)


def test_devices_with_other_shares_are_others(verified):
    """So that they share no sessions; their buffers may still pass between them."""
    assert vkdml.Device(verify=1) == verified != vkdml.Device()
    assert hash(vkdml.Device(verify=1)) == hash(verified) != hash(vkdml.Device())
    assert vkdml.Device().gpu is verified.gpu


def test_calls_in_turn(checks):
    device = vkdml.Device(verify=0.5)
    x, w, r = np.zeros((2, 1, 3), np.float32), np.zeros((1, 4, 3), np.float32), np.zeros((1, 4, 4), np.float32)
    for expected in (1, 1, 2, 2, 3):
        vkdml.rnn(x, w, r, device=device)
        assert len(checks) == expected
    vkdml.rnn(x, w, r)
    assert len(checks) == 3


def test_a_state_stays_as_it_was(verified, monkeypatch):
    """A step whose result is wrong did not happen."""
    layer = vkdml.RNN(np.ones((1, 4, 3), np.float32), np.ones((1, 4, 4), np.float32), device=verified)
    stream = layer.stream()
    x = np.full((1, 3), 0.1, np.float32)
    first = stream.step(x)

    def fail(*_):
        raise vkdml.VerificationError("wrong")

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_verify", fail)
        with pytest.raises(vkdml.VerificationError):
            stream.step(x)
    np.testing.assert_array_equal(stream.state["initial_h"][0], first)
    second = stream.step(x)
    np.testing.assert_array_equal(second, layer(np.stack([x, x]))[0][1, 0])


def test_the_error_says_what_is_wrong(verified, mistaken):
    mistaken("cpu/rnn_lanes", "cells/rnn.glsl", "recurrent[0]", "recurrent[0] * 0.999")
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(shape, np.float32) for shape in ((3, 2, 5), (1, 21, 5), (1, 21, 21)))
    with pytest.raises(vkdml.DriverError) as raised:
        vkdml.rnn(x, w, r, device=verified, options=vkdml.Options(fused=True, lanes=True, resident=False))
    for said in ("DML_RNN_OPERATOR_DESC in float32 with T, B, I, H = 3, 2, 5, 21", verified.info.name, verified.info.driver,
                 "cpu/rnn_lanes", "OutputSequenceTensor: ", "of 126 elements are wrong, the worst at [", "OutputSingleTensor"):
        assert said in str(raised.value)
