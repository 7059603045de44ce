"""Tests the fuzzer's calls to twins (copies of PyTorch's modules that vkdml runs), which must find planted mistakes."""

from collections import Counter

import pytest

from lab.tests.fuzz.test_fuzz import SIMPLE, only
from vkdml_lab.fuzz.search import search

torch = pytest.importorskip("torch")

from vkdml.faces.torch import modules, torch_operators
from vkdml_lab.fuzz import torch_face

run = modules.Twin._run


def run_compiled_without_states(twin, input, states, *sizes):
    return run(twin, input, () if torch.compiler.is_compiling() else states, *sizes)


@pytest.fixture
def compiled_anew():
    """Discard what torch.compile has compiled, before and after a test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(("way", "mistake", "message"), [
    ("copied module", (torch.nn.Parameter, "__deepcopy__", lambda parameter, memo: parameter), "numbers wrong"),
    ("transformed module", (torch_operators, "_check_derivatives", lambda *arguments: None), "was not refused"),
    pytest.param("compiled module", (modules.Twin, "_run", run_compiled_without_states), "numbers wrong", marks=pytest.mark.thorough),
])
def test_a_mistake_is_found(device, compiled_anew, monkeypatch, way, mistake, message):
    only(monkeypatch, {way: torch_face.FACES[way]})
    monkeypatch.setattr(*mistake)
    found = search([SIMPLE], 20, 0, Counter(), is_broken=False)
    assert message in str(found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [0, pytest.param(12, marks=pytest.mark.thorough)])
def test_calls_are_as_pytorchs(device, first):
    for seed in range(first, first + 12):
        torch_face.check_operator(seed) if seed % 4 == 3 else torch_face.Draw(seed).check()
