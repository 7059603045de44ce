"""Tests faces by random calls. Right calls must give right results. Broken calls must be refused before any work is done."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vkdml
from vkdml_lab.fuzz import running
from vkdml_lab.fuzz import search as search_module
from vkdml_lab.fuzz.breaking import WRONG
from vkdml_lab.fuzz.calls import FEW, OPTIONAL, Call, Operator, palette
from vkdml_lab.fuzz.faces import FACES
from vkdml_lab.fuzz.search import BLIND, search

REGRESSIONS = [json.dumps(call) for call in json.loads((Path(__file__).parent / "regressions.json").read_text())]
# An operator that all faces take, with all optional inputs
SIMPLE = Operator("LSTM", 3, 5, "forward", (("HARD_SIGMOID", 0.3, 0.4), ("TANH",), ("SCALED_TANH", 0.9, 0.8)), "float32", True, 1.2, OPTIONAL)


@pytest.mark.parametrize("text", REGRESSIONS)
def test_what_failed_once(device, text):
    running.run(Call.from_json(text))


def assert_none_fails(operators, count, seed, most_blind, **drawn):
    counts = Counter()
    found = search(operators, count, seed, counts, **drawn)
    assert found is None, str(found)
    blind = sum(counts[key] for key in counts if key[1] == BLIND)
    assert blind <= most_blind * counts.total(), counts
    return counts


def test_random_calls(device):
    counts = assert_none_fails([SIMPLE], 160, 0, 0.2, **FEW)
    assert {face for face, _ in counts} == set(FACES)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 9))
def test_more_random_calls(device, seed):
    """Random calls of three operators are right. At most a third are not judged, as they amplify rounding too much."""
    assert_none_fails(palette(seed, 3), 250, seed, 1 / 3, **({} if seed == 1 else FEW))


@pytest.mark.family("ways to call PyTorch's twin, behind the first", first=9)
@pytest.mark.parametrize("face", FACES)
def test_everything_wrong_is_refused(device, face):
    """A face refuses calls with one wrong argument, for each kind of argument and each wrong value of it in the table WRONG."""
    call = Call(face, SIMPLE, 3, 2)
    kinds = [argument.kind for argument in FACES[face].arguments(call).values() if argument.kind]
    for kind in set(kinds):
        for how in range(len(WRONG[kind])):
            running.check_refused(replace(call, breaks=((kinds.index(kind), how),)))


def test_calls_are_written_down_and_made_again():
    for seed in range(20):
        for operator in palette(seed, 4):
            call = Call("function", operator, 3, 2, special=np.nan, breaks=((1, 2),))
            again = Call.from_json(call.to_json())
            assert repr(again) == repr(call)
            for field, array in again.arrays.items():
                assert array.tobytes() == call.arrays[field].tobytes()


def only(monkeypatch, faces):
    monkeypatch.setattr(search_module, "FACES", faces)
    monkeypatch.setattr(running, "FACES", faces)


def run_instead(monkeypatch, run):
    """Replace the table of faces by a single face, which calls the function `run`."""
    only(monkeypatch, {"function": replace(FACES["function"], run=run)})


def test_a_wrong_number_is_found(device, monkeypatch):
    """The search finds a number that is off by 1e-4 in calls of two or more steps, and shrinks the call to two steps."""
    def run(call, values):
        part, = FACES["function"].run(call, values)
        if call.steps >= 2:
            part.results["OutputSingleTensor"][0, 0, 1, 0] += 1e-4
        return [part]

    run_instead(monkeypatch, run)
    found = search([SIMPLE], 200, 0, Counter(), **FEW)
    assert isinstance(found.error, AssertionError)
    assert "OutputSingleTensor" in str(found)
    assert (found.call.steps, found.call.batch, found.call.breaks) == (2, 2, ())
    assert found.call.to_json() in str(found)


def test_a_wrong_step_is_found_where_errors_grow(device):
    """A chaotic recurrence cannot be judged as a whole, but each of its steps can, so a wrong step is found."""
    call = Call("function", replace(SIMPLE, cell="RNN", hidden=33, activations=(("TANH",),), flag=False, clip=None, given=()), 40, 1, growth=8.0)
    parts = FACES["function"].run(call, {name: argument.value for name, argument in FACES["function"].arguments(call).items()})
    assert not running.judge(call, parts)
    parts[0].results["OutputSequenceTensor"][35, 0, 0, 2] += 1e-3  # the next step begins with it
    with pytest.raises(AssertionError, match="a step alone is wrong: OutputSequenceTensor: .* the worst at .3[56], 0, 0, "):
        running.judge(call, parts)


@pytest.mark.parametrize(("wrong", "message"), [
    (TypeError("no length"), "no length"), (vkdml.InvalidArgumentError("gru", "", 3, "4"), "names no field"), (None, "was taken")])
def test_a_wrong_error_is_found(device, monkeypatch, wrong, message):
    def run(call, values):
        if wrong:
            raise wrong
        return []

    run_instead(monkeypatch, run)
    found = search([SIMPLE], 20, 0, Counter(), is_broken=True)
    assert message in str(found)


def test_work_before_a_refusal_is_found(device, monkeypatch):
    def run(call, values):
        FACES["function"].run(call, {name: argument.value for name, argument in FACES["function"].arguments(call).items()})
        raise vkdml.InvalidArgumentError("gru", "X", 3, "4")

    run_instead(monkeypatch, run)
    assert "before it was refused" in str(search([SIMPLE], 20, 0, Counter(), is_broken=True))
