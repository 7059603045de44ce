"""The self-test passes on this device, and sees kernels that compute wrongly: a driver's mistakes are made in the shaders here."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import vkdml
from vkdml import cli
from vkdml.engine import compiled
from vkdml.engine.trust import choices, self_test
from vkdml.operators import cells, element_types
from vkdml.planning.options import MEETINGS
from vkdml.planning.plan import plan_of, tilings
from vkdml.planning.tiling import Target
from vkdml_lab.suite.support import make_desc, tensor

pytestmark = pytest.mark.device


@pytest.fixture
def quick(monkeypatch):
    """Only the kernels that compile in a moment."""
    monkeypatch.setattr(self_test, "KINDS", (self_test.ACTIVATION,))


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Nothing is kept from before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    self_test.check_kind.cache_clear()
    yield
    self_test.check_kind.cache_clear()


@pytest.mark.family("each kind in each type", first=2)
@pytest.mark.parametrize(("kind", "element"), [pytest.param(kind, element, id=f"{kind}-{element.name}")
                                               for kind in self_test.KINDS[::-1] for element in self_test.types_of(kind)])
def test_this_device_passes(device, kind, element):
    found = list(self_test.outcomes_of(device.gpu, kind, element))
    assert [outcome.wrong for outcome in found] == [""] * len(found) != []


@pytest.mark.parametrize("element", [element_types.FLOAT32, element_types.FLOAT64], ids=lambda element: element.name)
def test_every_kernel_is_run_once_at_least(device, element):
    problem = self_test._recurrent("LSTM", element)
    run = [kernel for plan in self_test.plans_of(device.info, problem) for kernel in self_test._kernels(plan)]
    target = Target(problem, device.info, without=frozenset(MEETINGS))
    assert set(run) == {kernel for tiling in tilings(target) for kernel in self_test._kernels(plan_of(target, tiling))}


def test_what_the_device_has_no_bindings_for_is_left_out(device, monkeypatch):
    monkeypatch.setattr(device.gpu, "info", replace(device.info, max_storage_buffers=8))
    assert list(self_test.outcomes_of(device.gpu, "LSTM", element_types.FLOAT64)) == []


# A kind, a part of the kernel's name, and the mistake
MISTAKES = [
    (self_test.ACTIVATION, "elementwise", "common/activations.glsl", "mix(exp(x)", "mix(exp2(x)"),
    ("RNN", "rnn", "cells/rnn.glsl", "recurrent[0]", "recurrent[0] * 0.999"),
    ("GRU", "gru", "cells/gru.glsl", "(1.0 - z) * n + z * h", "z * n + (1.0 - z) * h"),
]


@pytest.mark.family("mistakes", first=2)
@pytest.mark.parametrize(("kind", "name", "file", "old", "new"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_seen(device, mistaken, monkeypatch, kind, name, file, old, new):
    problem = self_test._activation(element_types.FLOAT32) if kind == self_test.ACTIVATION else self_test._recurrent(
        kind, element_types.FLOAT32)
    plan = next(self_test.plans_of(device.info, problem))
    kernel = next(kernel for kernel in self_test._kernels(plan) if name in kernel)
    mistaken(kernel, file, old, new)
    monkeypatch.setattr(self_test, "plans_of", lambda *_: [plan])
    with pytest.raises(vkdml.VerificationError) as raised:
        self_test.expect_right(device.gpu, self_test.outcomes_of(device.gpu, kind, element_types.FLOAT32))
    for said in (device.info.name, device.info.driver, kernel, "elements are wrong, the worst at"):
        assert said in str(raised.value)


def test_a_driver_that_fails_is_seen(device, monkeypatch):
    def fail(*_):
        raise vkdml.DriverError("lost")

    monkeypatch.setattr(self_test.Run, "execute", fail)
    (outcome,) = self_test.outcomes_of(device.gpu, self_test.ACTIVATION, element_types.FLOAT32)
    assert outcome.wrong == "lost"


# Before the first use

@pytest.fixture
def tested(monkeypatch, fresh):
    """Which kinds were tested; they pass unless a test says otherwise."""
    def outcomes_of(gpu, kind, element):
        found["tested"].append((kind, element.name))
        return [self_test.Outcome(kind, element.name, ("elementwise",), 0.0, found["wrong"])]

    found = {"tested": [], "wrong": ""}
    monkeypatch.setattr(self_test, "outcomes_of", outcomes_of)
    return found


RNN = make_desc(cells.RNN)
TANH = vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC(tensor(3), tensor(3))


def compile_both(device):
    for desc in (RNN, TANH, RNN):
        device.compile_operator(device.create_operator(desc))


@pytest.mark.parametrize(("mode", "is_known", "expected"), [
    ("", True, 0), ("", False, 2), ("on", True, 2), ("on", False, 2), ("off", False, 0)])
def test_drivers_that_are_not_known_are_tested_on_first_use(device, tested, monkeypatch, mode, is_known, expected):
    monkeypatch.setenv("VKDML_SELFTEST", mode)
    monkeypatch.setattr(compiled, "profile", lambda info: SimpleNamespace(is_known=is_known, tuned=False))
    compile_both(device)
    assert tested["tested"] == [("RNN", "float32"), ("activation", "float32")][:expected]
    self_test.check_kind.cache_clear()  # as in another process
    compile_both(device)
    assert len(tested["tested"]) == choices.count() == expected


def test_what_fails_is_refused_and_tested_again(device, tested, monkeypatch):
    monkeypatch.setenv("VKDML_SELFTEST", "on")
    tested["wrong"] = "3 elements"
    for _ in range(2):
        with pytest.raises(vkdml.VerificationError, match="computes wrongly: RNN in float32 with elementwise: 3 elements.*Update its driver or take another device"):
            compile_both(device)
    tested["wrong"] = ""
    compile_both(device)
    assert [kind for kind, _ in tested["tested"]] == ["RNN", "RNN", "RNN", "activation"]


def test_the_mode_is_checked(device, monkeypatch):
    monkeypatch.setenv("VKDML_SELFTEST", "yes")
    with pytest.raises(vkdml.InvalidArgumentError, match="VKDML_SELFTEST: found 'yes'; expected one of on, off"):
        compile_both(device)


# The ways to ask for it

def test_on_request(device, quick):
    assert [(outcome.kind, outcome.element) for outcome in device.selftest()] == [
        ("activation", element.name) for element in element_types.ALL]


def test_the_command(quick, capsys, monkeypatch):
    assert cli.main(["selftest"]) == 0
    assert capsys.readouterr().out.count("elementwise") == 4
    monkeypatch.setattr(self_test, "_wrong", lambda *_: "3 elements")
    assert cli.main(["selftest", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["results"][0]["wrong"] == "3 elements"
