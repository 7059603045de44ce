"""The self-test passes on this device, and sees kernels that compute wrongly: a driver's mistakes are made in the shaders here."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

import vkdml
from tests.engine.ready import as_ours
from vkdml import cli
from vkdml.engine import compiled
from vkdml.engine.trust import choices, self_test
from vkdml.operators import cells, element_types, table
from vkdml.planning.plain import plan as plan_plain
from vkdml.planning.plan import plan as plan_recurrent
from vkdml.planning.plan import plan_of, tilings
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import DEVICES, GPUS
from vkdml_lab.suite.support import make_desc, random_case, tensor

pytestmark = pytest.mark.device


@pytest.fixture
def quick(monkeypatch):
    """Only the kernels that compile in a moment."""
    monkeypatch.setattr(self_test, "KINDS", (self_test.ACTIVATION,))


@pytest.fixture
def fresh(device, monkeypatch, tmp_path):
    """Nothing is kept from before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    device.gpu.once_cache.pop(self_test.check, None)
    yield
    device.gpu.once_cache.pop(self_test.check, None)


@pytest.mark.family("each kind in each type", first=2)
@pytest.mark.parametrize(("kind", "element"), [pytest.param(kind, element, id=f"{kind}-{element.name}")
                                               for kind in self_test.KINDS[::-1] for element in self_test.types_of(kind)])
def test_this_device_passes(device, kind, element):
    found = list(self_test.outcomes_of(device.gpu, kind, element))
    assert [outcome.wrong for outcome in found] == [""] * len(found) != []


@pytest.mark.parametrize("element", [element_types.FLOAT32, element_types.FLOAT64], ids=lambda element: element.name)
def test_every_kernel_is_run_once_at_least(device, element):
    problem = self_test.problem_of("LSTM", element)
    run = [kernel for plan in self_test.plans_of(device.info, problem) for kernel in self_test._kernels(plan)]
    target = Target(problem, device.info, may_wait=False)
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
    problem = self_test.problem_of(kind, element_types.FLOAT32)
    plan = next(self_test.plans_of(device.info, problem))
    kernel = next(kernel for kernel in self_test._kernels(plan) if name in kernel)
    mistaken(kernel, file, old, new)
    monkeypatch.setattr(self_test, "plans_of", lambda *_: [plan])
    with pytest.raises(vkdml.VerificationError) as raised:
        self_test.expect_right(device.gpu, self_test.outcomes_of(device.gpu, kind, element_types.FLOAT32))
    for said in (device.info.name, device.info.driver, kernel, "elements are wrong, the worst at"):
        assert said in str(raised.value)


def test_a_driver_that_fails_is_seen(device, monkeypatch):
    @as_ours
    def fail(*_):
        raise vkdml.DriverError("lost")

    monkeypatch.setattr(self_test.Run, "execute", fail)
    (outcome,) = self_test.outcomes_of(device.gpu, self_test.ACTIVATION, element_types.FLOAT32)
    assert outcome.wrong == "lost"


# Before the first use

@pytest.fixture
def tested(monkeypatch, fresh):
    """Which operators were tested; they pass unless a test says otherwise."""
    def wrong(gpu, samples):
        found["tested"].append(samples[-1][0].operator.split("_")[1])
        return found["wrong"]

    found = {"tested": [], "wrong": ""}
    monkeypatch.setattr(self_test, "_wrong", wrong)
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
    assert tested["tested"] == ["RNN", "ACTIVATION"][:expected]
    device.gpu.once_cache.pop(self_test.check, None)  # as in another process
    compile_both(device)
    assert len(tested["tested"]) == choices.count() == expected


def test_other_constants_are_tested_and_other_sizes_are_not(device, tested, monkeypatch):
    monkeypatch.setenv("VKDML_SELFTEST", "on")
    for sizes in ((3, 2, 4, 5), (70, 2, 4, 5), (3, 2, 4, 5), (3, 2, 4, 6)):
        device.compile_operator(device.create_operator(make_desc(cells.RNN, *sizes)), options=vkdml.Options(schedule="sequence", rows=1))
    assert tested["tested"] == ["RNN"] * 2


@pytest.mark.family("random problems", first=4)
@pytest.mark.parametrize("seed", range(40))
def test_a_sample_runs_an_operators_pipelines(device, seed):
    problem = random_case(seed).problem
    for info in (device.info, *DEVICES.values(), *GPUS.values()):
        try:
            plan = plan_recurrent(problem, info)
        except vkdml.InvalidArgumentError:
            continue
        *_, (sample, planned) = self_test.samples_of(info, problem, plan, vkdml.Options())
        assert self_test.pipelines(planned) == self_test.pipelines(plan)
        assert sample.steps <= 8
        assert sample.batch < 4 * plan.tiling.loop.rows


@pytest.mark.family("random problems, of each cell one", first=3)
@pytest.mark.parametrize("seed", range(40))
def test_random_problems_pass(device, fresh, seed):
    problem = random_case(seed).problem
    plan = plan_recurrent(problem, device.info)
    self_test.check(device.gpu, problem, plan, vkdml.Options())
    assert self_test.pipelines(plan) <= device.gpu.once_cache[self_test.check].keys()


LARGE = {
    "add": lambda: table.from_desc(vkdml.DML_ELEMENT_WISE_ADD_OPERATOR_DESC(
        ATensor=tensor(3, 1000, 1000), BTensor=tensor(3, 1000, 1000), OutputTensor=tensor(3, 1000, 1000))),
    "gemm": lambda: table.from_desc(vkdml.DML_GEMM_OPERATOR_DESC(
        ATensor=tensor(1, 1, 1000, 500), BTensor=tensor(1, 1, 700, 500), OutputTensor=tensor(1, 1, 1000, 700), Alpha=1.0, Beta=0.0,
        TransB=vkdml.DML_MATRIX_TRANSFORM.TRANSPOSE)),
    "join": lambda: table.from_desc(vkdml.DML_JOIN_OPERATOR_DESC(InputTensors=[tensor(1000, 500)], OutputTensor=tensor(1000, 500), Axis=1)),
    "gather": lambda: table.from_desc(vkdml.DML_GATHER_OPERATOR_DESC(
        InputTensor=tensor(1, 5000, 300), IndicesTensor=tensor(1, 1, 9, data_type=vkdml.DML_TENSOR_DATA_TYPE.UINT32),
        OutputTensor=tensor(1, 9, 300), Axis=1, IndexDimensions=1)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_operators_are_tested_on_parts(device, fresh, name):
    problem = LARGE[name]()
    plan = plan_plain(problem, device.info)
    ((sample, planned),) = self_test.samples_of(device.info, problem, plan, vkdml.Options())
    assert {kernel for kernel, *_ in self_test.pipelines(planned)} == {kernel for kernel, *_ in self_test.pipelines(plan)}
    assert name == "join" or all(math.prod(part.sizes) <= 2**17 for part in sample.tensors.values() if part)
    self_test.check(device.gpu, problem, plan, vkdml.Options())


def test_what_fails_is_refused_and_tested_again(device, tested, monkeypatch):
    monkeypatch.setenv("VKDML_SELFTEST", "on")
    tested["wrong"] = "3 elements"
    for _ in range(2):
        with pytest.raises(vkdml.VerificationError, match="computes wrongly: DML_RNN_OPERATOR_DESC in float32 with .*: 3 elements.*Update its driver or take another device"):
            compile_both(device)
    tested["wrong"] = ""
    compile_both(device)
    assert tested["tested"] == ["RNN", "RNN", "RNN", "ACTIVATION"]


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
