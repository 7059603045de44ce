"""Finding devices, choosing one, and what is said when there is none. Each in a process of its own environment."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

import vkdml
from vkdml.engine.vulkan import gpu as low_level
from vkdml.engine.vulkan import queries
from vkdml.engine.vulkan.gpu import open_device
from vkdml_lab.suite.devices import GPU


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.device
def test_enumerate():
    infos = vkdml.Device.enumerate()
    assert [info.index for info in infos] == sorted({info.index for info in infos})
    assert all(info.name and info.subgroup_size >= 1 and info.max_storage_buffer_range >= 2**27 for info in infos)


@pytest.mark.device
@pytest.mark.parametrize("choose", [lambda info: info.index, lambda info: info.name, lambda info: info.name[:5].upper()])
def test_choose(choose):
    info = vkdml.Device.enumerate()[0]
    assert vkdml.Device(choose(info)).info == info


@pytest.mark.parametrize(("word", "found"), [
    (1, 1), ("1", 1), ("card", 0), ("CARD B", 1), ("00112233-4455-6677-8899-AABBCCDDEEFF", 1), ("0000:0B:00.1", 1), ("0b:00.1", 1),
    ("GPU-00112233-4455-6677-8899-aabbccddeeff", 1), ("00000000:0b:00.1", 1), ("card 2", 0)])
def test_words_for_a_device(word, found, monkeypatch):
    """As nvidia-smi and lspci have them, too. The first one's driver tells no address."""
    infos = [replace(GPU, index=0, name="card 2", uuid="f0112233-4455-6677-8899-aabbccddeeff"),
             replace(GPU, index=1, name="card b", uuid="00112233-4455-6677-8899-aabbccddeeff", pci_address="0000:0b:00.1")]
    monkeypatch.setattr(low_level, "enumerate_devices", lambda: infos)
    assert low_level.select_device(word).index == found
    for wrong in (2, "2", "0b:00", "00112233"):
        with pytest.raises(vkdml.DriverError, match="no Vulkan device"):
            low_level.select_device(wrong)


@pytest.mark.device
def test_environment_variable(monkeypatch):
    info = vkdml.Device.enumerate()[0]
    monkeypatch.setenv("VKDML_DEVICE", info.name)
    assert vkdml.Device().info == info
    monkeypatch.setenv("VKDML_DEVICE", "no such device")
    with pytest.raises(vkdml.DriverError, match=r"no Vulkan device 'no such device'; the devices are \[0\] .*Choose one by index, UUID, PCI address or name"):
        vkdml.Device()
    assert vkdml.Device(info.index).info == info


@pytest.mark.device
def test_default_prefers_a_real_gpu():
    cpu = vkdml.Device.enumerate()[0]
    types = ["cpu", "integrated", "discrete", "virtual"]
    infos = [queries.DeviceInfo(**{**vars(cpu), "index": index, "type": kind}) for index, kind in enumerate(types)]
    assert queries.default_device(infos).type == "discrete"
    assert queries.default_device(infos[:2]).type == "integrated"
    assert queries.default_device(infos[:1]).type == "cpu"


@pytest.fixture
def machine(monkeypatch):
    """Has devices of these names."""
    def has(*names):
        infos = [replace(GPU, index=index, name=name) for index, name in enumerate(names)]
        monkeypatch.setattr(low_level, "enumerate_devices", lambda: infos)

    return has


@pytest.mark.parametrize(("names", "index", "found"), [
    (["a", "b", "c"], 1, 1), (["b", "a", "c"], 1, 0), (["b", "a", "b"], 2, 2), (["b", "a", "b"], 1, 0), (["b"], 5, 0)])
def test_a_device_is_selected_again_by_its_index_and_name(names, index, found, machine):
    """It was device `index`, b, in another process."""
    machine(*names)
    assert low_level.select_again(index, "b").index == found


def test_a_device_that_is_not_there_again(machine):
    machine("a", "B", "bb")
    with pytest.raises(vkdml.DriverError, match=r"no Vulkan device 'b', which a pickled object names; the devices are \[0\] a, .* Give the object no"):
        low_level.select_again(1, "b")


@pytest.mark.parametrize("call", ["vkdml.Device.enumerate()", "vkdml.Device()"])
def test_no_driver(call):
    nothing = run(f"import vkdml\ntry: {call}\nexcept vkdml.DriverError as error: print(error)",
                  VK_ICD_FILENAMES="/nonexistent.json", VK_DRIVER_FILES="/nonexistent.json")
    assert nothing.stdout.count("\n") == 1, nothing.stderr
    assert "install one, on Debian and Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers" in nothing.stdout


WITHOUT_KP = """
import sys, importlib.abc
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *rest):
        if name == "vkdml.engine.vulkan._kp": raise ImportError({reason!r})
sys.meta_path.insert(0, Refuse())
"""


def test_no_loader():
    """The package can be imported, and a command ends with one line."""
    nothing = run(WITHOUT_KP.format(reason="libvulkan.so.1: cannot open shared object file") +
                  "import ctypes\nimport vkdml, vkdml.cli\n"
                  "def refuse(*a, **k): raise OSError('libvulkan.so.1: cannot open')\nctypes.CDLL = refuse\n"
                  "try: vkdml.Device()\nexcept vkdml.DriverError as error: print(error)\n"
                  "print(vkdml.cli.main(['devices']))")
    said, code = nothing.stdout.splitlines()
    assert said.startswith("no Vulkan loader (libvulkan.so.1); install one")
    assert (code, nothing.stderr) == ("1", f"vkdml: {said}\n")


def test_kp_cannot_be_imported():
    nothing = run(WITHOUT_KP.format(reason="undefined symbol") + "try: import vkdml\nexcept RuntimeError as error: print(error)")
    assert nothing.stdout.startswith("Kompute's Python package kp, a part of vkdml, cannot be imported (undefined symbol): install vkdml again")
    assert nothing.stdout.count("\n") == 1


def test_an_older_kp_is_refused():
    """One error that says what to do, whatever that kp can do: one that was built for a tree of before."""
    found = run("import sys, types\nolder = sys.modules['vkdml.engine.vulkan._kp'] = types.ModuleType('_kp')\nolder.__version__ = '0.9.0+vkdml.3'\n"
                "try: import vkdml\nexcept RuntimeError as error: print(error)")
    assert found.stdout == (f"kp 0.9.0+vkdml.3 was built into vkdml, but it needs kp {low_level.KP_VERSION}: install vkdml again, from its wheel for "
                            "this Python or by `make setup` in its source tree\n"), found.stderr


SHOW_LOGGING = "print(logging.root.level, [type(handler).__name__ for handler in logging.root.handlers])\n"


def test_the_applications_logging_is_left_alone():
    after = run("import logging, sys, vkdml\n" + SHOW_LOGGING
                + "logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format='[%(message)s]')\n" + SHOW_LOGGING
                + "logging.debug('seen')")
    assert after.stdout.splitlines() == ["30 []", "10 ['StreamHandler']", "[seen]"], after.stderr
    before = run("import logging\nlogging.basicConfig(level=logging.INFO, handlers=[logging.NullHandler()])\n"
                 "import vkdml\n" + SHOW_LOGGING)
    assert before.stdout == "20 ['NullHandler']\n", before.stderr


def test_an_internal_buffer_is_not_filled_on_the_host(device):
    """By the most memory that the process ever had, in a process of its own, as that never shrinks."""
    size = 2**28
    own = size if device.info.driver == "SwiftShader driver" else 0  # it fills itself what it allocates
    used = run("import resource, vkdml\n"
               "from vkdml.engine.vulkan.memory import DeviceMemory\n"
               "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
               "gpu = vkdml.Device().gpu\nbefore = peak()\n"
               f"memory = DeviceMemory(gpu, {size}, 'own')\nprint(peak() - before)")
    assert int(used.stdout) < own + size / 16, used.stderr


def test_a_device_stays_the_same_when_the_process_gets_other_cores(device):
    assert open_device(replace(device.info, cores=device.info.cores + 1)) is open_device(device.info)
