"""Tests the adapters of libraries in the benchmark, which must compute every kind of case correctly."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from lab.tests.bench.support import KINDS
from vkdml_lab.bench import measure
from vkdml_lab.bench.runner import Runner, most_alike
from vkdml_lab.bench.worker import LibraryWorker
from vkdml_lab.faults import layer
from vkdml_lab.processes import UnavailableError


@pytest.mark.device
@pytest.mark.family("each kind in each type")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name + "-lbr0" * (not case.linear_before_reset))
def test_ours_and_onnx_runtime_compute_every_kind_of_case(case, dtype):
    from vkdml_lab.bench.adapters import ort, ours

    for way, make in ours.Library(dtype=dtype).ways(case).items():
        if way != "module" or case.linear_before_reset:  # PyTorch has no other GRU
            assert_right(case, make(), 1e-5 if dtype == "float32" else 1e-3)
    for runner in ort.Library().prepare(case).values():
        assert_right(case, runner)


@pytest.mark.parametrize("tf32", [None, False])
@pytest.mark.parametrize("case", KINDS[:5], ids=lambda case: case.name)
def test_each_way_to_call_torch(case, tf32, monkeypatch):
    """Each way to call PyTorch on a GPU gives right results. A stand-in for the GPU computes on the CPU."""
    torch = pytest.importorskip("torch")
    from vkdml_lab.bench.adapters import torch_gpu, torch_nn

    assert list(torch_nn.Library("cpu").ways(case)) == ["host"]
    waits = []
    double = torch_gpu.TorchDevice(torch.device("cpu"), "a double", lambda: waits.append(1), lambda work: work, has_tf32=True)
    monkeypatch.setattr(torch_gpu, "find", lambda kinds, name: double)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    library = torch_nn.Library("gpu", tf32=tf32)
    assert ("TF32 not allowed" in library.description["device"]) == (tf32 is False)
    ways = library.ways(case)
    assert list(ways) == [way for way, has in {
        "host": True, "device": True, "graph": not case.ragged, "queued": not case.streaming,
        "graph queued": not (case.ragged or case.streaming)}.items() if has]
    for way, make in ways.items():
        runner = make()
        runner.before()
        assert torch.backends.cudnn.allow_tf32 is (tf32 is None)
        waits.clear()
        runner.run()
        assert (len(waits), runner.calls) == (int(way != "host"), 10 if "queued" in way else 1)
        assert_right(case, runner)


def test_a_sample_counts_calls():
    """A Runner may make 10 calls at once. A sample of 30 calls then runs it three times, and calls its `before` once."""
    did = []
    worker = LibraryWorker()
    worker._runners = {"queued": lambda: Runner(KINDS[0], lambda: did.append("run") or (), tuple, list, 10, lambda: did.append("set"))}
    worker.sample("queued", 30)
    worker.sample("queued", 3)
    assert did == ["set", "run", "run", "run", "set", "run"]


@pytest.mark.device
@pytest.mark.parametrize("case", [replace(case, batch=1) for case in KINDS[:3] + KINDS[4:5]], ids=lambda case: case.name)
def test_ncnn_computes_one_row(case):
    ncnn_vulkan = pytest.importorskip("vkdml_lab.bench.adapters.ncnn_vulkan", exc_type=ModuleNotFoundError)
    for runner in ncnn_vulkan.Library("").prepare(case).values():
        assert_right(case, runner)


@pytest.mark.device
def test_ncnn_says_how_many_dispatches_it_makes(monkeypatch):
    ncnn_vulkan = pytest.importorskip("vkdml_lab.bench.adapters.ncnn_vulkan", exc_type=ModuleNotFoundError)
    assert set(ncnn_vulkan.counted("")) == {"GRU", "LSTM", "RNN"}
    for count, device in ((4, ncnn_vulkan.devices()[0]), (0, "CPU")):
        monkeypatch.setattr(ncnn_vulkan, "counted", lambda _, count=count: {"GRU": count, "LSTM": 0})
        assert ncnn_vulkan.Library("").description["device"] == f"{device}; Vulkan dispatches in 4 steps: GRU {count}, LSTM 0"


DISPATCHING = {
    "vkdml": "layer = vkdml.RNN(np.ones((1, 2, 2), 'f'), np.ones((1, 2, 2), 'f'))\nlayer(np.ones((3, 1, 2), 'f'))",
    "ncnn": """from vkdml_lab.bench.adapters.ncnn_vulkan import net_of, run
net = net_of("7767517\\n2 2\\nInput X 0 1 X\\nInnerProduct layer 1 1 X Y 0=2 1=0 2=8\\n", [np.ones(8, 'f')])
run(net, {"X": np.ones(4, 'f')}, ("Y",))"""}


@pytest.mark.device
@pytest.mark.parametrize("library", DISPATCHING)
def test_dispatches_are_counted(library, tmp_path):
    """The counter of dispatches, a Vulkan layer, is at 0 until a library computes on Vulkan, and higher afterwards."""
    pytest.importorskip(library)
    program = (f"import numpy as np, pathlib, vkdml\nfrom vkdml_lab.faults.layer import Layer\nof = Layer(pathlib.Path({str(tmp_path)!r}))\n"
               f"before = of.dispatches\n{DISPATCHING[library]}\nprint(before, of.dispatches)")
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **layer.build(tmp_path)}, text=True, capture_output=True)
    before, after = map(int, done.stdout.split()[-2:])
    assert before == 0 < after, done.stderr


def test_a_gpu_that_a_library_does_not_see(monkeypatch):
    torch = pytest.importorskip("torch")
    from vkdml_lab.bench.adapters import ort, torch_nn

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnavailableError, match=r"sees no GPU \(cuda\)"):
        torch_nn.Library("cuda")
    with pytest.raises(UnavailableError, match="has no CUDAExecutionProvider"):
        ort.Library("CUDAExecutionProvider")


def test_the_gpu_with_the_most_similar_name():
    """`most_alike` returns the GPU whose name has the most words of the wanted name, as libraries write names differently."""
    found = {0: "Intel(R) Arc(TM) A380 Graphics", 1: "NVIDIA GeForce RTX 3090", 2: "AMD Radeon RX 7900 XTX"}
    assert most_alike(found, "AMD Radeon RX 7900 XTX (RADV NAVI31)") == 2
    assert most_alike(found, "llvmpipe (LLVM 15.0.6, 256 bits)") == 0


def assert_right(case, runner, tolerance=1e-5):
    for _ in range(2):  # again from a zero state
        runner.reset()
        for _ in range(case.checked_calls):
            runner.run()
        assert measure.difference(case, runner.outputs()) < tolerance
