"""What devices are asked, by drivers that are here, and by a loader that only notes what it is asked."""

import ctypes
import json
import os
import subprocess
import sys
from types import MappingProxyType

import pytest

import vkdml
from vkdml.engine.vulkan import queries, structures
from vkdml_lab.gpu.drivers import manifest

SUBGROUP, DRIVER, SIZES = structures.SubgroupProperties, structures.DriverProperties, structures.SubgroupSizeControlProperties
CONTROL = structures.SubgroupSizeControlFeatures
SINCE_1_1 = {SUBGROUP, structures.IDProperties, structures.Maintenance3Properties, structures.Storage16BitFeatures}
SINCE_1_2 = SINCE_1_1 | {DRIVER}
SINCE_1_3 = SINCE_1_2 | {SIZES}


class Head(ctypes.Structure):
    """What all of Vulkan's chained structures begin with."""

    _fields_ = [("sType", ctypes.c_uint32), ("pNext", ctypes.c_void_p)]


class Loader:
    """Answers as a driver with some extensions would, and notes the types of the structures that it is given."""

    def __init__(self, answers):
        self.types = []
        self._answers = answers
        self.vkGetPhysicalDeviceProperties2 = lambda _, reference: self._answer(reference._obj.pNext, structures.PROPERTIES)
        self.vkGetPhysicalDeviceFeatures2 = lambda _, reference: self._answer(reference._obj.pNext, structures.FEATURES)

    def _answer(self, address, known):
        while address:
            head = Head.from_address(address)
            chained = next(kind for kind in known if head.sType == kind.TYPE)
            self.types.append(chained)
            for name, value in self._answers.get(chained, {}).items():
                setattr(chained.from_address(address), name, value)
            address = head.pNext


def ask(version, *extensions, answers=MappingProxyType({})):
    loader = Loader(answers)
    return queries.ask(loader, ctypes.c_void_p(), version, set(extensions)), set(loader.types)


@pytest.mark.parametrize(("version", "extensions", "known"), [
    ((1, 1), [], SINCE_1_1),
    ((1, 1), [b"VK_KHR_driver_properties"], SINCE_1_1 | {DRIVER}),
    ((1, 1), [b"VK_EXT_subgroup_size_control"], SINCE_1_1 | {SIZES, CONTROL}),
    ((1, 2), [b"VK_KHR_16bit_storage"], SINCE_1_2),
    ((1, 3), [], SINCE_1_3),
    ((1, 4), [b"VK_NV_shader_sm_builtins"], SINCE_1_3 | {structures.ShaderSMBuiltinsProperties}),
    ((1, 3), [b"VK_AMD_shader_core_properties"], SINCE_1_3 | {structures.ShaderCoreProperties}),
    ((1, 3), [b"VK_AMD_shader_core_properties2"], SINCE_1_3 | {structures.ShaderCoreProperties2}),
    ((1, 3), [b"VK_ARM_shader_core_builtins"], SINCE_1_3 | {structures.ShaderCoreBuiltinsProperties}),
])
def test_devices_are_asked_for_what_they_know(version, extensions, known):
    asked, types = ask(version, *extensions)
    assert types == known
    assert set(asked) == {*structures.PROPERTIES, *structures.FEATURES}


MADE = {"shaderEngineCount": 6, "shaderArraysPerEngineCount": 2, "computeUnitsPerShaderArray": 8}


@pytest.mark.parametrize(("extensions", "units"), [
    ([], 0),
    ([b"VK_AMD_shader_core_properties"], 96),
    ([b"VK_AMD_shader_core_properties", b"VK_AMD_shader_core_properties2"], 84),
    ([b"VK_NV_shader_sm_builtins"], 132),
    ([b"VK_ARM_shader_core_builtins"], 20),
])
def test_compute_units(extensions, units):
    asked, _ = ask((1, 3), *extensions, answers={
        structures.ShaderCoreProperties: MADE,
        structures.ShaderCoreProperties2: {"activeComputeUnitCount": 84},
        structures.ShaderSMBuiltinsProperties: {"shaderSMCount": 132, "shaderWarpsPerSM": 64},
        structures.ShaderCoreBuiltinsProperties: {"shaderCoreMask": 2**20 - 1, "shaderCoreCount": 20, "shaderWarpsPerCore": 32},
    })
    assert queries._compute_units(asked) == units


# VkMemoryPropertyFlagBits in hexadecimal: DEVICE_LOCAL 1, HOST_VISIBLE 2, HOST_COHERENT 4, HOST_CACHED 8
@pytest.mark.parametrize(("driver", "kind", "types", "is_unified"), [
    ("llvmpipe", "cpu", [0xf], True),
    ("RADV, discrete", "discrete", [0x1, 0x6, 0x7, 0xe], False),
    ("RADV, in the processor", "integrated", [0x1, 0x6, 0x7, 0xe], True),
    ("ANV, in the processor", "integrated", [0x1, 0x7, 0xf], True),
    ("ANV, not coherent where it is cached", "integrated", [0x7, 0xb], True),
    ("ANV, discrete", "discrete", [0x1, 0xe, 0x7], False),
    ("NVK", "discrete", [0x1, 0x7, 0xe], False),
    ("Turnip", "integrated", [0x7, 0xf, 0xb, 0x11], True),
    ("not coherent", "integrated", [0x1, 0xb, 0x6], False),
    ("of a virtual machine", "virtual", [0x7], False),
])
def test_unified_memory(driver, kind, types, is_unified):
    assert queries._is_unified(kind, types) == is_unified


# RADV's further types, 0xc7 and the like, need the feature deviceCoherentMemory
@pytest.mark.parametrize(("driver", "is_unified", "types", "taken"), [
    ("llvmpipe", True, [0xf], 0),
    ("RADV, discrete", False, [0x1, 0x1, 0x6, 0x7, 0x7, 0xe, 0xe, 0xc7, 0xce], 5),
    ("RADV, in the processor", True, [0x1, 0x6, 0x7, 0xe], 3),
    ("ANV, in the processor", True, [0x1, 0x7, 0xf], 2),
    ("ANV, discrete", False, [0x1, 0xe, 0x7], 1),
    ("NVK", False, [0x1, 0x7, 0xe], 2),
    ("Turnip", True, [0x7, 0xf, 0xb, 0x11], 1),
    ("cached without coherence", True, [0x7, 0xb], 0),
    ("none cached", False, [0x1, 0x7, 0x6], 2),
    ("none but over the bus", False, [0x1, 0x7], 1),
    ("cached on both sides of the bus", False, [0xf, 0xe], 1),
    ("only with a feature", False, [0xce, 0x6], 1),
    ("not coherent", False, [0x1, 0xa], -1),
])
def test_the_memory_that_the_host_sees(driver, is_unified, types, taken):
    """Cached and coherent before coherent, on the host's side of the bus before the other."""
    assert queries._host_memory_type(is_unified, types) == taken


@pytest.mark.parametrize(("driver", "types", "taken"), [
    ("RADV", [0x1, 0x1, 0x6, 0x7, 0x7, 0xe, 0xe, 0xc7, 0xce], 2),
    ("ANV", [0x1, 0xe, 0x7], 1),
    ("NVK", [0x1, 0x7, 0xe], 2),
    ("uncached", [0x1, 0xe, 0x6, 0x7], 2),
    ("none but over the bus", [0x1, 0xf, 0x7], 2),
    ("only with a feature", [0xc6, 0xe], 1),
    ("not coherent", [0x1, 0x2], -1),
])
def test_the_memory_that_the_host_only_writes(driver, types, taken):
    """On the host's side of the bus before the other, not cached before cached."""
    assert queries._host_memory_type(False, types, is_read=False) == taken


@pytest.mark.parametrize(("types", "taken"), [([0xf], 0), ([0x1, 0xc7, 0x6, 0x7, 0xe], 3), ([0x1, 0x6, 0xe], -1), ([0x1, 0x3], -1)])
def test_the_device_memory_that_the_host_sees(types, taken):
    assert queries._direct_memory_type(types) == taken


@pytest.mark.parametrize(("types", "taken"), [([0xf], 0), ([0x6, 0x1, 0x7], 1), ([0x6], -1)])
def test_the_memory_that_the_host_does_not_see(types, taken):
    assert queries.device_memory_type(types) == taken


def test_the_heap_that_buffers_come_from():
    memory = structures.MemoryProperties(memoryTypeCount=3, memoryHeapCount=2)
    memory.memoryTypes[:3] = [structures.MemoryType(propertyFlags=1, heapIndex=heap) for heap in (1, 0, 1)]
    memory.memoryHeaps[:2] = [structures.MemoryHeap(size) for size in (10, 20)]
    assert [queries._heap_bytes(memory, memory_type) for memory_type in (0, 1, 2, -1)] == [20, 10, 20, 0]


# VkQueueFlagBits in hexadecimal: GRAPHICS 1, COMPUTE 2, TRANSFER 4, SPARSE_BINDING 8
@pytest.mark.parametrize(("flags", "taken"), [
    ([0x7], 0), ([0xf, 0xe, 0xc], 1), ([0xf, 0xc, 0xe, 0xe], 2), ([0xc, 0x7], 1), ([0x1, 0x7, 0x6], 2), ([0x2], 0)])
def test_the_queues_for_compute_without_graphics(flags, taken):
    assert queries._queue_family(flags) == taken


def test_addresses_are_as_lspci_has_them():
    assert queries._pci_address(structures.PCIBusInfoProperties(pciDomain=1, pciBus=0x1f, pciDevice=2, pciFunction=3)) == "0001:1f:02.3"
    assert queries._pci_address(structures.PCIBusInfoProperties()) == ""


@pytest.mark.device
def test_facts_are_consistent():
    for info in queries.enumerate_devices():
        assert info.vendor
        assert info.uuid.replace("-", "").strip("0")
        assert info.max_allocation >= 2**30  # as Vulkan guarantees
        assert info.min_subgroup_size <= info.max_subgroup_size
        if info.max_subgroup_size:
            assert info.min_subgroup_size <= info.subgroup_size <= info.max_subgroup_size
        assert info.storage_buffer_alignment in [2 ** power for power in range(9)]  # Vulkan's largest is 256
        if info.is_cpu:
            assert (info.compute_units, info.unified_memory) == (0, True)


@pytest.mark.parametrize(("function", "result", "error", "says"), [
    ("vkCreateInstance", -9, vkdml.DriverError, "no driver that it can load; install one"),
    ("vkCreateInstance", -1, vkdml.OutOfMemoryError, "while listing devices: vkCreateInstance: VK_ERROR_OUT_OF_HOST_MEMORY. VK_LOADER_DEBUG=error"),
    ("vkEnumeratePhysicalDevices", -3, vkdml.DriverError, "vkEnumeratePhysicalDevices: VK_ERROR_INITIALIZATION_FAILED"),
    ("vkEnumeratePhysicalDevices", -1000, vkdml.DriverError, "vkEnumeratePhysicalDevices: -1000"),
])
def test_what_the_loader_returns_is_looked_at(monkeypatch, function, result, error, says):
    class Failing:
        def __getattr__(self, name):
            def call(*arguments):
                return result if name == function else 0

            call.__name__ = name
            return call

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Failing())
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=says):
        queries.enumerate_devices()
    if result == -9:
        monkeypatch.setenv("VK_ICD_FILENAMES", "/no/such.json")
        with pytest.raises(error, match=r"can load \(it looks only where VK_ICD_FILENAMES=/no/such.json says\); install one"):
            queries.enumerate_devices()


@pytest.mark.device
def test_a_manifest_that_is_no_json(tmp_path):
    """The loader says that memory ran out."""
    (tmp_path / "broken.json").write_text("{")
    code = "import vkdml\ntry: vkdml.Device()\nexcept vkdml.DriverError as error: print(type(error).__name__, error)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                           env={**os.environ, "VK_ICD_FILENAMES": str(tmp_path / "broken.json"), "VK_DRIVER_FILES": str(tmp_path / "broken.json")})
    assert found.stdout.startswith(f"DriverError the manifest of a Vulkan driver or layer is no JSON: {tmp_path / 'broken.json'}. Fix")


def installed(name, *folder):
    """The manifest of one of Mesa's drivers."""
    found = manifest(name, *folder)
    return found if found.exists() else pytest.skip(f"Mesa's driver {name} is not installed")


def cpu_driver(**says):
    """The manifest of Mesa's driver for CPUs, which says this of it."""
    manifest = json.loads(installed("lvp").read_text())
    return {**manifest, "ICD": {**manifest["ICD"], **says}}


def with_manifest(folder, manifest, code, **environment):
    """What a program prints, with the driver of this manifest alone."""
    path = folder / "icd.json"
    path.write_text(json.dumps(manifest))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                           env={**os.environ, "VK_ICD_FILENAMES": str(path), "VK_DRIVER_FILES": str(path), **environment})
    return found.stdout


@pytest.mark.device
def test_a_manifest_of_vulkan_1_0(tmp_path):
    """The loader then passes nothing on that came with 1.1, and hides what decides about the plans."""
    manifest = cpu_driver(api_version="1.0.0")
    code = "import vkdml\ntry: vkdml.Device()\nexcept vkdml.DriverError as error: print(error)"
    assert with_manifest(tmp_path, manifest, code).startswith("no Vulkan device with Vulkan 1.1 or newer, as the device and its driver's manifest say; install")


@pytest.mark.device
@pytest.mark.parametrize(("family", "sizes", "waves", "row"), [
    ("navi21", [32, 64], 16, "AMD RDNA"), ("vega10", [64, 64], 10, "AMD GCN and CDNA")])
def test_a_gpu_that_is_not_here(family, sizes, waves, row):
    """RADV describes GPUs without having one. It does not say then how many compute units they have, but what is in one."""
    radv = str(installed("radeon"))
    code = ("import json\nfrom vkdml.engine.vulkan import queries\nfrom vkdml.planning import profiles\nask, asked = queries.ask, []\n"
            "def noted(*arguments):\n    asked.append(ask(*arguments))\n    return asked[-1]\n"
            "queries.ask = noted\n(info,) = queries.enumerate_devices()\n"
            "core = asked[0][queries.structures.ShaderCoreProperties]\n"
            "print(json.dumps([info.vendor, info.min_subgroup_size, info.max_subgroup_size, info.unified_memory, core.wavefrontSize,"
            " core.wavefrontsPerSimd, next(name for name, row in profiles.PROFILES.items() if row is profiles.profile(info))]))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                           env={**os.environ, "RADV_FORCE_FAMILY": family, "VK_ICD_FILENAMES": radv, "VK_DRIVER_FILES": radv})
    if "Unknown family" in found.stderr or "DriverError" in found.stderr:
        pytest.skip("this version of RADV does not describe the GPU")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == [0x1002, *sizes, False, 64, waves, row]
