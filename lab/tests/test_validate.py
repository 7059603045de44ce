"""Tests vkdml_lab/validate.py: its run under GPU-assisted validation must include every GPU kernel."""

from dataclasses import replace

from tests.engine.test_gradients import CELLS as GRADIENT_CELLS
from tests.engine.test_gradients import ragged
from tools.compile_shaders import kernels
from vkdml.planning.plan import plan
from vkdml_lab.suite.devices import GPU
from vkdml_lab.suite.test_gpu_kernels import CASES, WAYS
from vkdml_lab.validate import GPU_CASES, GPU_KERNELS, GPU_WAYS, PROJECTION, ROOT, TESTS


def test_what_is_run_is_there():
    for test in [*TESTS, *GPU_KERNELS, *PROJECTION]:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_all_kernels_for_gpus_are_run():
    run = set()
    for case in (CASES[name] for name in GPU_CASES):
        info = replace(GPU, storage_16bit=True, max_shared_memory=65536)
        for way in GPU_WAYS:
            run |= {dispatch.kernel for dispatch in plan(case.problem, info, WAYS[way].options(case.problem, info)).execute}
    for problem in map(ragged, GRADIENT_CELLS):
        info = replace(GPU, max_shared_memory=65536)
        run |= {dispatch.kernel for way in WAYS.values() for dispatch in plan(problem, info, way.options(problem, info)).execute}
    coherent = {name for name in kernels() if name.endswith("_persistent_coherent")}  # another test runs these
    assert {name for name in kernels() if "gpu/" in name} - coherent == {name for name in run if "gpu/" in name}
