"""What is measured is right: libraries on every kind of case."""

import pytest

from lab.tests.bench.support import KINDS
from vkdml_lab.bench import measure
from vkdml_lab.bench.runner import most_alike
from vkdml_lab.processes import UnavailableError


@pytest.mark.device
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name + "-lbr0" * (not case.linear_before_reset))
def test_ours_and_onnx_runtime_compute_every_kind_of_case(case):
    from vkdml_lab.bench.adapters import ort, ours

    for runner in [*ours.Library().prepare(case).values(), *ort.Library().prepare(case).values()]:
        assert_right(case, runner)


@pytest.mark.parametrize("case", KINDS[:5], ids=lambda case: case.name)
def test_weights_of_torch(case):
    pytest.importorskip("torch")
    from vkdml_lab.bench.adapters import torch_nn

    library = torch_nn.Library("cpu")
    assert list(library.prepare(case)) == ["host"]
    for runner in library.ways(case).values():
        assert_right(case, runner)


def test_a_gpu_that_a_library_does_not_see(monkeypatch):
    torch = pytest.importorskip("torch")
    from vkdml_lab.bench.adapters import ort, torch_nn

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnavailableError, match=r"sees no GPU \(cuda\)"):
        torch_nn.Library("cuda")
    with pytest.raises(UnavailableError, match="has no CUDAExecutionProvider"):
        ort.Library("CUDAExecutionProvider")


def test_of_several_gpus_the_one_that_is_named_alike():
    """Libraries write names otherwise."""
    found = {0: "Intel(R) Arc(TM) A380 Graphics", 1: "NVIDIA GeForce RTX 3090", 2: "AMD Radeon RX 7900 XTX"}
    assert most_alike(found, "AMD Radeon RX 7900 XTX (RADV NAVI31)") == 2
    assert most_alike(found, "llvmpipe (LLVM 15.0.6, 256 bits)") == 0


def assert_right(case, runner):
    for _ in range(2):  # again from a zero state
        runner.reset()
        for _ in range(case.checked_calls):
            runner.run()
        assert measure.difference(case, runner.outputs()) < 1e-5
