"""Queries of the Vulkan loader, in ctypes: the devices, their limits, and the features to open them with. kp does not report
all of them.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_uint32, c_void_p
from pathlib import Path
from typing import Any
from uuid import UUID

from ...errors import DriverError, OutOfMemoryError
from ...planning.device_info import DeviceInfo
from . import structures, system
from .spirv import CompiledKernel

# VkResult
_SUCCESS, _INCOMPLETE, _NO_DRIVER = 0, 5, -9
_RESULTS = {-1: "VK_ERROR_OUT_OF_HOST_MEMORY", -2: "VK_ERROR_OUT_OF_DEVICE_MEMORY", -3: "VK_ERROR_INITIALIZATION_FAILED",
            -4: "VK_ERROR_DEVICE_LOST", -6: "VK_ERROR_LAYER_NOT_PRESENT", -7: "VK_ERROR_EXTENSION_NOT_PRESENT"}
_OUT_OF_MEMORY = (-1, -2)

# VkPhysicalDeviceType, and the order in which the default device is chosen
_TYPES = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_PREFERENCE = ["discrete", "integrated", "virtual", "other", "cpu"]


def default_device(infos: list[DeviceInfo]) -> DeviceInfo:
    """Return the device to use by default: a GPU rather than a CPU driver, among equals the loader's first."""
    return min(infos, key=lambda info: _PREFERENCE.index(info.type))


_LEAST_VERSION = (1, 1)
_NEWEST_VERSION = (1, 3)  # structures of later versions are not asked for
_MOST_BUFFER_BYTES = 2**32 - 4  # kp's sizes are uint32, and larger ones would wrap without an error
_STAGE_COMPUTE = 0x20
_OPERATIONS_OF_LANES = 0x10 | 0x80  # VkSubgroupFeatureFlagBits: shuffle and quad
_NAMES_DRIVERS = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")  # variables that tell the loader where drivers are
_MANIFESTS = [Path("/etc/vulkan"), Path("/usr/share/vulkan"), Path("/usr/local/share/vulkan")]  # the loader looks here too
_DEVICE_LOCAL, _HOST_VISIBLE, _HOST_COHERENT, _HOST_CACHED = 1, 2, 4, 8  # VkMemoryPropertyFlagBits
_NEED_NO_FEATURE = 0xf  # all memory types with other flags than these need a device feature
_GRAPHICS, _COMPUTE = 1, 2  # VkQueueFlagBits
_SHARES_MEMORY = b"VK_KHR_external_memory_fd"
_STORAGE_BUFFER, _OPAQUE_FD, _EXPORTABLE = 0x20, 1, 2  # of buffers, external memory and its features


def enumerate_devices() -> list[DeviceInfo]:
    """Return all devices with Vulkan 1.1 or newer, in the loader's order, which kp's indices have too.

    Raises DriverError if there is no loader or driver.
    """
    with physical_devices() as (vk, _, handles):
        infos = [_query(vk, index, handle) for index, handle in enumerate(handles)]
    usable = [info for info in infos if info is not None]
    if not usable:
        raise DriverError("no Vulkan device with Vulkan 1.1 or newer, as the device and its driver's manifest say; install a "
                          f"driver, {system.REMEDY}")
    return usable


@contextmanager
def physical_devices() -> Iterator[tuple[ctypes.CDLL, c_void_p, list[c_void_p]]]:
    """Yield the loader, an instance, and a handle for each device. Raises as enumerate_devices does."""
    vk = system.load_vulkan()
    app = structures.ApplicationInfo(sType=0, apiVersion=_NEWEST_VERSION[0] << 22 | _NEWEST_VERSION[1] << 12)
    create = structures.InstanceCreateInfo(sType=1, pApplicationInfo=ctypes.pointer(app))
    instance = c_void_p()
    _check("vkCreateInstance", vk.vkCreateInstance(byref(create), None, byref(instance)))
    try:
        yield vk, instance, [c_void_p(handle) for handle in enumerated(c_void_p, vk.vkEnumeratePhysicalDevices, instance)]
    finally:
        vk.vkDestroyInstance(instance, None)


def _check(function: str, result: int | None) -> None:
    if result not in (None, _SUCCESS, _INCOMPLETE):  # None: it cannot fail; incomplete: there are more now than counted
        if result in (*_OUT_OF_MEMORY, _NO_DRIVER) and (broken := _broken_manifests()):  # how old and new loaders report it
            raise DriverError(f"the manifest of a Vulkan driver or layer is no JSON: {', '.join(broken)}. Fix or remove it")
        if result == _NO_DRIVER:
            asked = ", ".join(f"{name}={os.environ[name]}" for name in _NAMES_DRIVERS if os.environ.get(name))
            where = f" (it looks only where {asked} says)" if asked else ""
            raise DriverError(f"the Vulkan loader found no driver that it can load{where}; install one, {system.REMEDY}")
        error = OutOfMemoryError if result in _OUT_OF_MEMORY else DriverError
        raise error(f"the Vulkan driver failed while listing devices: {function}: {_RESULTS.get(result, result)}. "
                    "VK_LOADER_DEBUG=error,driver in the environment shows which driver, VK_DRIVER_FILES names others to take")


def _broken_manifests() -> list[str]:
    """Return the paths of drivers' and layers' manifests that are no JSON."""
    asked = [Path(path) for name in _NAMES_DRIVERS for path in os.environ.get(name, "").split(os.pathsep) if path]
    broken = []
    for path in dict.fromkeys([*asked, *(path for folder in _MANIFESTS for path in folder.glob("*.d/*.json"))]):
        try:
            if path.is_file():
                json.loads(path.read_bytes())
        except (OSError, ValueError):
            broken.append(str(path))
    return broken


def enumerated(element: type[Any], function: Any, *arguments: Any) -> list[Any]:
    """Return all elements that one of Vulkan's functions enumerates. It is called for their number first."""
    count = c_uint32()
    _check(function.__name__, function(*arguments, byref(count), None))
    elements = (element * count.value)()
    _check(function.__name__, function(*arguments, byref(count), elements))
    return list(elements)[:count.value]


def _query(vk: ctypes.CDLL, index: int, handle: c_void_p) -> DeviceInfo | None:
    properties = structures.Properties()
    vk.vkGetPhysicalDeviceProperties(handle, byref(properties))
    version = version_of(properties.apiVersion)
    if version < _LEAST_VERSION:
        return None
    extensions = extensions_of(vk, handle)
    asked = ask(vk, handle, version, extensions)
    if not asked[structures.SubgroupProperties].subgroupSize:  # a manifest that says Vulkan 1.0 hides the driver's answers
        return None
    memory, flags = memory_of(vk, handle)
    subgroup, sizes = asked[structures.SubgroupProperties], asked[structures.SubgroupSizeControlProperties]
    driver, limits = asked[structures.DriverProperties], properties.limits
    kind = _TYPES.get(properties.deviceType, "other")
    is_unified = _is_unified(kind, flags)
    host_memory_type = _host_memory_type(is_unified, flags)
    return DeviceInfo(
        index=index,
        name=properties.deviceName.decode(),
        type=kind,
        driver=driver.driverName.decode(),
        driver_version=driver.driverInfo.decode() or hex(properties.driverVersion),
        api_version=dotted(properties.apiVersion),
        subgroup_size=subgroup.subgroupSize,
        subgroup_shuffle=bool(subgroup.supportedStages & _STAGE_COMPUTE
                              and subgroup.supportedOperations & _OPERATIONS_OF_LANES == _OPERATIONS_OF_LANES),
        max_workgroup_invocations=min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]),
        max_workgroup_count=min(limits.maxComputeWorkGroupCount),
        max_shared_memory=limits.maxComputeSharedMemorySize,
        max_storage_buffer_range=min(limits.maxStorageBufferRange, _MOST_BUFFER_BYTES),
        max_storage_buffers=limits.maxPerStageDescriptorStorageBuffers,
        cores=len(os.sched_getaffinity(0)),
        vendor=properties.vendorID,
        device_id=properties.deviceID,
        driver_id=driver.driverID,
        compute_units=_compute_units(asked),
        min_subgroup_size=sizes.minSubgroupSize,
        max_subgroup_size=sizes.maxSubgroupSize,
        max_workgroup_subgroups=sizes.maxComputeWorkgroupSubgroups,
        unified_memory=is_unified,
        memory=_heap_bytes(memory, host_memory_type if is_unified else device_memory_type(flags)),
        max_allocation=asked[structures.Maintenance3Properties].maxMemoryAllocationSize,
        storage_buffer_alignment=limits.minStorageBufferOffsetAlignment,
        subgroup_size_control=bool(asked[structures.SubgroupSizeControlFeatures].subgroupSizeControl
                                   and sizes.requiredSubgroupSizeStages & _STAGE_COMPUTE),
        storage_16bit=bool(asked[structures.Storage16BitFeatures].storageBuffer16BitAccess),
        pipeline_cache_uuid=bytes(properties.pipelineCacheUUID).hex(),
        queue_family=_queue_family([family.queueFlags for family in queue_families_of(vk, handle)]),
        host_memory_type=host_memory_type,
        direct_memory_type=_direct_memory_type(flags),
        upload_memory_type=_host_memory_type(is_unified, flags, is_read=False),
        uuid=str(UUID(bytes=bytes(asked[structures.IDProperties].deviceUUID))),
        pci_address=_pci_address(asked[structures.PCIBusInfoProperties]),
        shares_memory=_SHARES_MEMORY in extensions and _exports_buffers(vk, handle),
    )


def _exports_buffers(vk: ctypes.CDLL, handle: c_void_p) -> bool:
    """Return whether buffers can be exported as opaque files: the extension's name does not say for which files it is."""
    found = structures.ExternalBufferProperties(sType=structures.ExternalBufferProperties.TYPE)
    vk.vkGetPhysicalDeviceExternalBufferProperties.restype = None
    vk.vkGetPhysicalDeviceExternalBufferProperties(handle, byref(structures.ExternalBufferInfo(
        sType=structures.ExternalBufferInfo.TYPE, usage=_STORAGE_BUFFER, handleType=_OPAQUE_FD)), byref(found))
    return bool(found.externalMemoryFeatures & _EXPORTABLE)


def _pci_address(found: Any) -> str:
    """Return a PCI address as lspci writes it; empty for 0000:00:00.0, which is never a GPU."""
    if not any((found.pciDomain, found.pciBus, found.pciDevice, found.pciFunction)):
        return ""
    return f"{found.pciDomain:04x}:{found.pciBus:02x}:{found.pciDevice:02x}.{found.pciFunction:x}"


def version_of(packed: int) -> tuple[int, int]:
    return packed >> 22 & 0x7f, packed >> 12 & 0x3ff


def dotted(packed: int) -> str:
    return ".".join(map(str, (*version_of(packed), packed & 0xfff)))


def extensions_of(vk: ctypes.CDLL, handle: c_void_p) -> set[bytes]:
    return {found.extensionName for found in enumerated(
        structures.ExtensionProperties, vk.vkEnumerateDeviceExtensionProperties, handle, None)}


def ask(vk: ctypes.CDLL, handle: c_void_p, version: tuple[int, int], extensions: set[bytes],
        features: Sequence[type[structures.Chained]] = structures.FEATURES) -> dict[type[Any], Any]:
    """Query structures.PROPERTIES and features. Return them by class; those that the device does not know are 0."""
    asked: dict[type[Any], Any] = {}
    for head, chain in ((structures.Properties2, structures.PROPERTIES), (structures.Features2, features)):
        last = None
        for chained in chain:
            found = asked[chained] = chained(sType=chained.TYPE)
            if chained.EXTENSION in extensions or (chained.SINCE is not None and version >= chained.SINCE):
                found.pNext, last = last, ctypes.addressof(found)
        function = getattr(vk, head.FUNCTION)
        function.restype = None
        function(handle, byref(head(sType=head.TYPE, pNext=last)))
    return asked


def memory_of(vk: ctypes.CDLL, handle: c_void_p) -> tuple[structures.MemoryProperties, list[int]]:
    """Return a device's memory, and the flags of each type of memory."""
    memory = structures.MemoryProperties()
    vk.vkGetPhysicalDeviceMemoryProperties(handle, byref(memory))
    return memory, [found.propertyFlags for found in memory.memoryTypes[:memory.memoryTypeCount]]


def queue_families_of(vk: ctypes.CDLL, handle: c_void_p) -> list[structures.QueueFamily]:
    function = vk.vkGetPhysicalDeviceQueueFamilyProperties
    function.restype = None
    return enumerated(structures.QueueFamily, function, handle)


def _queue_family(flags: list[int]) -> int:
    """Return the first queue family for compute without graphics, which slows no display; else the first for compute."""
    computes = [index for index, given in enumerate(flags) if given & _COMPUTE]
    return min(computes, key=lambda index: bool(flags[index] & _GRAPHICS), default=0)


def _compute_units(asked: dict[type[Any], Any]) -> int:
    """Return the number of compute units as drivers report it: active ones before built ones; 0 if unknown."""
    made = asked[structures.ShaderCoreProperties]
    return (asked[structures.ShaderCoreProperties2].activeComputeUnitCount
            or made.shaderEngineCount * made.shaderArraysPerEngineCount * made.computeUnitsPerShaderArray
            or asked[structures.ShaderSMBuiltinsProperties].shaderSMCount
            or asked[structures.ShaderCoreBuiltinsProperties].shaderCoreCount)


def _is_unified(kind: str, memory_types: Iterable[int]) -> bool:
    """Return whether the device can work in buffers that the host reads and writes.

    A CPU or a GPU in the processor can, if the host sees some memory that is the device's own. A discrete GPU may show memory
    to the host too, but then one of them would read across the bus.
    """
    both = _DEVICE_LOCAL | _HOST_VISIBLE | _HOST_COHERENT
    return kind in ("integrated", "cpu") and any(flags & both == both for flags in memory_types)


def _host_memory_type(is_unified: bool, memory_types: list[int], is_read: bool = True) -> int:
    """Return the index of the type of memory that the host writes and, if `is_read`, reads; -1 if none is visible and coherent.

    If it is read, cached memory is preferred, as uncached reads are some hundred times slower, and then memory outside of a
    discrete GPU, which is not across the bus. If it is only written, that is preferred first, and then memory that is not
    cached, whose writes read nothing before. Types that need a device feature are left out.
    """
    both = _HOST_VISIBLE | _HOST_COHERENT
    fit = [index for index, flags in enumerate(memory_types) if flags & both == both and not flags & ~_NEED_NO_FEATURE]

    def cost(index: int) -> tuple[bool, bool]:
        flags = memory_types[index]
        is_cached, is_across = bool(flags & _HOST_CACHED), not is_unified and bool(flags & _DEVICE_LOCAL)
        return (not is_cached, is_across) if is_read else (is_across, is_cached)

    return min(fit, default=-1, key=cost)


def _direct_memory_type(memory_types: list[int]) -> int:
    """Return the index of the type of device memory that the host sees, across the bus of a discrete GPU; -1 if none is."""
    wanted = _DEVICE_LOCAL | _HOST_VISIBLE | _HOST_COHERENT
    return next((index for index, flags in enumerate(memory_types) if flags & ~_HOST_CACHED == wanted), -1)


def device_memory_type(memory_types: list[int]) -> int:
    """Return the index of the type of memory that kp takes for the device alone, the first local to it; -1 if none is."""
    return next((index for index, flags in enumerate(memory_types) if flags & _DEVICE_LOCAL), -1)


def _heap_bytes(memory: structures.MemoryProperties, memory_type: int) -> int:
    """Return the bytes of the heap that a type of memory belongs to; 0 for type -1."""
    return int(memory.memoryHeaps[memory.memoryTypes[memory_type].heapIndex].size) if memory_type >= 0 else 0


# SPIR-V's capabilities that need no feature: Matrix, Shader, and GroupNonUniform with its kinds, which a device may lack
# (planning asks for DeviceInfo.subgroup_shuffle)
_ALWAYS = {0, 1, *range(61, 69)}
_NAMES = {9: "Float16", 10: "Float64", 11: "Int64", 22: "Int16", 39: "Int8", 4433: "StorageBuffer16BitAccess",
          4448: "StorageBuffer8BitAccess", 5345: "VulkanMemoryModel", 6019: "DotProduct", 6022: "CooperativeMatrixKHR"}


# Features of Vulkan: the field of DeviceInfo that says whether a device has one, its structure and name, and the numbers of the
# SPIR-V capabilities that it permits
_FEATURES = (
    ("storage_16bit", structures.Storage16BitFeatures, "storageBuffer16BitAccess", {4433}),
    ("subgroup_size_control", structures.SubgroupSizeControlFeatures, "subgroupSizeControl", set[int]()),
)


class Enabled:
    """The features to open a device with: those that vkdml uses and the device has.

    extensions: names of extensions to enable. address: of a chain of Vulkan's structures, valid while this object lives; or 0.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        self.extensions = [_SHARES_MEMORY.decode()] * info.shares_memory
        self._capabilities = set(_ALWAYS)
        self._chain: list[Any] = []
        self.address = 0
        for fact, structure, name, capabilities in _FEATURES:
            if getattr(info, fact):
                self.extensions += [structure.EXTENSION.decode()] if structure.EXTENSION else []
                self._capabilities |= capabilities
                self._chain.append(structure(sType=structure.TYPE, pNext=self.address or None, **{name: 1}))
                self.address = ctypes.addressof(self._chain[-1])

    def check(self, kernel: CompiledKernel, subgroup_size: int, workgroup: int) -> None:
        """Raise DriverError if a kernel needs a feature that is not enabled. subgroup_size: the size that it needs; 0: any."""
        missing = sorted(kernel.interface.capabilities - self._capabilities)
        if missing:
            needs = {number: f" (feature {name})" for *_, name, permitted in _FEATURES for number in permitted}
            names = ", ".join(f"{_NAMES.get(number, number)}{needs.get(number, '')}" for number in missing)
            raise DriverError(f"{kernel.name} needs SPIR-V's capability {names}, which is not enabled on {self._info.name}")
        if subgroup_size and not self._info.has_subgroups_of(subgroup_size, workgroup):
            found = (f"{self._info.min_subgroup_size} to {self._info.max_subgroup_size}, at most "
                     f"{self._info.max_workgroup_subgroups} a workgroup" if self._info.subgroup_size_control
                     else "no feature subgroupSizeControl")
            raise DriverError(f"{kernel.name} needs workgroups of {workgroup} with subgroups of {subgroup_size}, and "
                              f"{self._info.name} has {found}")
