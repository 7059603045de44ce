from dataclasses import replace

import pytest

import vkdml
from tools.compile_shaders import compile_source
from vkdml.engine import compiled
from vkdml.engine.trust import tuner
from vkdml.engine.trust.trial import Verdict
from vkdml.planning import plan, profiles
from vkdml.planning.gpus import GPUS
from vkdml.planning.tiling import Tiling
from vkdml_lab.suite.support import drawn_case, gru_desc

COMPUTE_UNITS = 2
SCHEDULES = ("persistent", "sequence", "stepped")  # what the model is to like best first
# b = a + steps, added one by one
ADD = """
#version 450
layout(local_size_x = 1) in;
layout(binding = 0) buffer A { uint a[]; };
layout(binding = 1) buffer B { uint b[]; };
layout(push_constant) uniform Push { uint steps; };
void main() {
    uint sum = a[gl_GlobalInvocationID.x];
    for (uint step = 0; step < steps; ++step) sum += 1 + (sum & step & 0x80000000u);
    b[gl_GlobalInvocationID.x] = sum;
}
"""


@pytest.fixture(scope="session")
def shader(tmp_path_factory):
    """A file: the compiled shader that adds."""
    folder = tmp_path_factory.mktemp("shader")
    (folder / "add.comp").write_text(ADD)
    compile_source(folder / "add.comp", folder / "add.spv")
    return folder / "add.spv"


@pytest.fixture
def tuned(device, monkeypatch, tmp_path):
    """The device as one whose model is a guess, with the kernels for GPUs, and nothing kept from before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("VKDML_TUNING", raising=False)
    name, row = next((name, row) for name, row in profiles.PROFILES.items() if row.fits(device.info))
    made_up = replace(row, tuned=True, prefers_shuffles=False,
                      gpu=replace(GPUS["unknown"], units=COMPUTE_UNITS), integrated_units=COMPUTE_UNITS)
    monkeypatch.setitem(profiles.PROFILES, name, made_up)
    monkeypatch.setattr(Tiling, "seconds", lambda tiling, target: (1 + SCHEDULES.index(tiling.loop.schedule)) * 1e-3
                        + 1e-6 * tiling.run_seconds(target))
    for cached in (tuner.tuner, plan.ranked):
        cached.cache_clear()
    yield device
    for cached in (tuner.tuner, plan.ranked):
        cached.cache_clear()


@pytest.fixture
def trusted(monkeypatch):
    """Which cells and loads the grid-sync test was asked about; it is not run, and both loads pass unless a test says otherwise."""
    asked = []

    def test(gpu, sync):
        asked.append((sync.cell.name, "coherent" if sync.coherent_polls else "volatile"))
        return Verdict(asked[-1][1] in trusting["passing"], "made up")

    trusting = {"asked": asked, "passing": ("volatile", "coherent")}
    monkeypatch.setattr(tuner, "grid_sync_test", test)
    return trusting


@pytest.fixture(params=["host memory", "device memory"])
def memory(request, device, monkeypatch):
    """CPU drivers work in the host's memory; all that is copied to and from a GPU's is tried on them too. On a GPU
    each buffer for the host is two.
    """
    if request.param == "host memory" and not device.gpu.host_memory:
        pytest.skip("the device has memory of its own")
    monkeypatch.setattr(device.gpu, "host_memory", request.param == "host memory")
    return request.param


@pytest.fixture(scope="module")
def verified():
    return vkdml.Device(verify=1)


@pytest.fixture
def checks(monkeypatch):
    """The operators that were checked, and the outputs of each."""
    found, verify = [], compiled._verify

    def counted(gpu, problem, plan, memory):
        found.append((problem.operator, sorted(set(memory) & set(problem.outputs))))
        verify(gpu, problem, plan, memory)

    monkeypatch.setattr(compiled, "_verify", counted)
    return found


@pytest.fixture
def case():
    return drawn_case(gru_desc(5, 3, 6, 9))
