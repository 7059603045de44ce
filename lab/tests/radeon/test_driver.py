"""Tests `vkdml radeon`, which emulates a Radeon beneath Mesa's driver. `make test` skips most tests, as they are slow."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vkdml_lab import ROOT
from vkdml_lab.gpu.drivers import FETCHED

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def drivers():
    if not (FETCHED / "done").exists():
        fetched = subprocess.run([ROOT / "lab/vkdml_lab/gpu/fetch", FETCHED], capture_output=True, text=True)
        if fetched.returncode:
            pytest.skip(f"Mesa's drivers cannot be fetched: {fetched.stderr.strip()}")


def radeon(*command, **settings):
    environment = os.environ | {f"VKDML_RADEON_{name.upper()}": value for name, value in settings.items()}
    return subprocess.run([sys.executable, "-m", "vkdml", "radeon", *command], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize(("gpu", "only"), [("rx7900xtx", "persistent"), ("rx6900xt", "stepped and GRU"),
                                             ("rx9070", "persistent and GRU")])
def test_kernels(drivers, gpu, only):
    found = radeon("--gpu", gpu, "pytest", "-p", "no:cacheprovider", "lab/vkdml_lab/suite/test_gpu_kernels.py", "-m", "not thorough", "-k", only)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize("resident", ["1", "2"])
def test_parts_that_have_no_room_give_up_and_are_right(drivers, resident):
    found = radeon("pytest", "-p", "no:cacheprovider", "lab/vkdml_lab/suite/test_gpu_kernels.py", "-k", "test_each_way and many and GRU",
                   resident=resident)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.fixture(scope="module")
def waits(tmp_path_factory):
    library = tmp_path_factory.mktemp("waits") / "waits.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-o", library,
                    Path(__file__).with_name("waits.c"), "-lvulkan"], check=True)
    script = f"import ctypes; run = ctypes.CDLL('{library}').run; run.restype = ctypes.c_char_p; print(run(b'%s', %d))"
    return lambda gpu, way, family: radeon("--gpu", gpu, "timeout", "300", "python", "-c", script % (way, family), budget="2000000")


_COMPUTE, _GRAPHICS = 1, 0  # queue families
_WAYS = ["fences", "idle queue", "idle device", "semaphores", "timelines", "timeline of the host", "events", "event of the host", "times", "files"]


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize(("gpu", "way", "family"), [
    *(("rx7900xtx", way, _COMPUTE) for way in _WAYS), ("rx6900xt", "idle queue", _COMPUTE), ("rx9070", "idle queue", _GRAPHICS)])
def test_each_wait_ends_when_what_it_waits_for_is_done(drivers, waits, gpu, way, family):
    found = waits(gpu, way, family)
    assert (found.returncode, found.stdout) == (0, "None\n"), found.stdout + found.stderr


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize("family", [_COMPUTE, _GRAPHICS])
def test_a_wait_that_nothing_ends_is_a_finding(drivers, waits, family):
    found = waits("rx7900xtx", "event of nobody", family)
    assert (found.returncode, found.stdout) == (1, "None\n"), found.stdout + found.stderr
    assert "nothing ends a wait for memory" in found.stderr


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize("gpu", ["rx7900xtx", "rx6900xt", "rx9070"])
def test_kernels_that_need_more_registers_than_there_are(drivers, gpu):
    found = radeon("--gpu", gpu, "python", "-m", "lab.tests.radeon.spills")
    assert found.returncode == 0, found.stdout + found.stderr
    assert all(map(int, re.search(r"(\d+) stores to scratch memory, (\d+) to shared memory", found.stdout).groups()))


@pytest.mark.family("on the emulated GPU", first=0)
def test_children_run_on_it_too(drivers):
    found = radeon("python", "-m", "lab.tests.radeon.children")
    assert found.stdout.count("RADV NAVI31") == 7, found.stdout + found.stderr
    assert int(re.search(r"([\d,]+) dispatches", found.stderr)[1].replace(",", "")) >= 7 * 3


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_command_ends_with_it(drivers, number):
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    running = subprocess.Popen([sys.executable, "-m", "vkdml", "radeon", "python", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    state = Path("/proc", running.stdout.readline().strip(), "stat")
    assert state.exists()
    running.send_signal(number)
    assert running.wait() == -number
    end = time.monotonic() + 30
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.family("on the emulated GPU", first=0)
def test_exactly_as_many_workgroups_as_are_needed_and_one_less(drivers):
    found = radeon("python", "-m", "lab.tests.radeon.room")
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("the fallback was right") == 2


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize("case", ["GEMM", "gather"])
def test_the_self_test_sees_broken_instructions(drivers, case):
    found = radeon("python", "-m", "lab.tests.radeon.broken", "--cases", case)
    seen, unseen = map(int, re.search(r": (\d+) spoil a problem and are seen, (\d+) are not", found.stdout).groups())
    assert seen >= 20, found.stdout + found.stderr
    assert not unseen, found.stdout + found.stderr


@pytest.mark.family("on the emulated GPU", first=0)
def test_mistakes_are_seen(drivers):
    found = radeon("python", "-m", "lab.tests.radeon.mutations", "--most", "2", "--ways", "persistent")
    table = dict(re.findall(r"persistent +(\w[\w ]*?) +\d+ places.*?: (\{.*?\})", found.stdout))
    assert table.keys() >= {"s_barrier", "vmcnt", "lgkmcnt", "glc", "swapped"}, found.stdout + found.stderr
    assert not [kind for kind in ("vmcnt", "vm_vsrc") if "not seen" in table[kind]], found.stdout
    in_any_order = ("s_barrier", "s_waitcnt_vscnt", "vm_vsrc", "vmcnt", "lgkmcnt", "glc")
    assert not [kind for kind in in_any_order if "numbers" in table.get(kind, "")], found.stdout


@pytest.mark.family("on the emulated GPU", first=0)
@pytest.mark.parametrize("seed", [0, 1000])
def test_random_problems(drivers, seed):
    found = radeon("python", "-m", "lab.tests.radeon.soak", "--minutes", "0.3", "--seed", str(seed))
    assert found.returncode == 0, found.stdout + found.stderr
    assert int(re.search(r"(\d+) random problems were right", found.stdout)[1]) > 0


@pytest.mark.thorough
def test_a_python_is_the_one_under_the_driver(drivers, tmp_path):
    script = "import sys, vkdml; print(sys.executable, vkdml.Device().info.name)"
    names = {radeon(python, "-c", script).stdout for python in ("python", "python3", sys.executable)}
    assert "RADV" in names.pop()
    assert not names
    (tmp_path / "python").symlink_to(os.path.realpath(sys.executable))
    found = radeon(tmp_path / "python", "-c", script)
    assert (found.returncode, found.stdout) == (2, "")
    assert f"radeon: {tmp_path}/python has another C library than the driver: say python, which is {sys.executable}" in found.stderr


def test_what_to_run_must_be_said():
    found = radeon()
    assert found.returncode == 2
    assert "say what to run" in found.stderr
