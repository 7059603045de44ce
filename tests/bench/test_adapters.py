"""What is measured is right: libraries on every kind of case."""

import pytest

from bench import measure
from tests.bench.support import KINDS


@pytest.mark.device
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name + "-lbr0" * (not case.linear_before_reset))
def test_ours_and_onnx_runtime_compute_every_kind_of_case(case):
    from bench.adapters import ort, ours

    for runner in [*ours.Library().prepare(case).values(), *ort.Library().prepare(case).values()]:
        assert_right(case, runner)


@pytest.mark.parametrize("case", KINDS[:5], ids=lambda case: case.name)
def test_weights_of_torch(case):
    pytest.importorskip("torch")
    from bench.adapters import torch_nn

    assert_right(case, torch_nn.Library().prepare(case)["host"])


def assert_right(case, runner):
    for _ in range(2):  # again from a zero state
        runner.reset()
        for _ in range(case.checked_calls):
            runner.run()
        assert measure.difference(case, runner.outputs()) < 1e-5
