"""The devices and their limits, asked of the Vulkan loader through ctypes, as kp does not pass all of them on.

No device is opened here: engine/vulkan/gpu.py does that.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from ctypes import byref, c_char_p, c_uint32, c_void_p
from typing import Any

from ...errors import DriverError, OutOfMemoryError
from ...planning.device_info import DeviceInfo
from . import structures, system

# VkResult
_SUCCESS, _INCOMPLETE, _NO_DRIVER = 0, 5, -9
_RESULTS = {-1: "VK_ERROR_OUT_OF_HOST_MEMORY", -2: "VK_ERROR_OUT_OF_DEVICE_MEMORY", -3: "VK_ERROR_INITIALIZATION_FAILED",
            -4: "VK_ERROR_DEVICE_LOST", -6: "VK_ERROR_LAYER_NOT_PRESENT", -7: "VK_ERROR_EXTENSION_NOT_PRESENT"}
_OUT_OF_MEMORY = (-1, -2)

# VkPhysicalDeviceType, and which of them the default prefers
_TYPES = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_PREFERENCE = ["discrete", "integrated", "virtual", "other", "cpu"]


def default_device(infos: list[DeviceInfo]) -> DeviceInfo:
    """A real GPU before a CPU driver; among equals the loader's first."""
    return min(infos, key=lambda info: _PREFERENCE.index(info.type))


_LEAST_VERSION = (1, 1)
_NEWEST_VERSION = (1, 3)  # whose structures are asked for, of devices that have it
_MOST_BUFFER_BYTES = 2**32 - 4  # kp holds a buffer's size in a uint32, in which larger ones would wrap without an error
_STAGE_COMPUTE = 0x20
_OPERATIONS_OF_LANES = 0x10 | 0x80  # shuffle and quad
_NAMES_DRIVERS = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")  # the loader's variables
_ENUMERATE_PORTABILITY = 1  # VkInstanceCreateFlagBits
_DEVICE_LOCAL, _HOST_VISIBLE, _HOST_COHERENT = 1, 2, 4  # VkMemoryPropertyFlagBits


def _asked_for() -> str:
    """The drivers that the environment has the loader look at; empty: all that are installed."""
    asked = [f"{name}={os.environ[name]}" for name in _NAMES_DRIVERS if os.environ.get(name)]
    return f" (it looks only where {', '.join(asked)} says)" if asked else ""


def enumerate_devices() -> list[DeviceInfo]:
    """All devices with Vulkan 1.1 or newer, in the order of the loader and of kp's indices; also those of drivers that lack
    parts of it, as macOS's.

    Raises DriverError where there is no loader or driver.
    """
    vk, remedy = system.load_vulkan(), system.this_system().remedy
    app = structures.ApplicationInfo(sType=0, apiVersion=_NEWEST_VERSION[0] << 22 | _NEWEST_VERSION[1] << 12)
    create = structures.InstanceCreateInfo(sType=1, pApplicationInfo=ctypes.pointer(app))
    _ask_for_portability(vk, create)
    instance = c_void_p()
    result = vk.vkCreateInstance(byref(create), None, byref(instance))
    if result == _NO_DRIVER:
        raise DriverError(f"the Vulkan loader found no driver that it can load{_asked_for()}; install one, {remedy}")
    _check("vkCreateInstance", result)
    try:
        handles = _all(c_void_p, vk.vkEnumeratePhysicalDevices, instance)
        infos = [_query(vk, index, c_void_p(handle)) for index, handle in enumerate(handles)]
    finally:
        vk.vkDestroyInstance(instance, None)
    usable = [info for info in infos if info is not None]
    if not usable:
        raise DriverError("no Vulkan device with Vulkan 1.1 or newer, as the device and its driver's manifest say; install a "
                          f"driver, {remedy}")
    return usable


def loader() -> dict[str, Any]:
    """The version of the Vulkan loader, and by their names those of the layers that it finds: of Vulkan, and (of their own)."""
    vk, packed = system.load_vulkan(), c_uint32()
    _check("vkEnumerateInstanceVersion", vk.vkEnumerateInstanceVersion(byref(packed)))
    layers = {layer.layerName.decode(): f"{_dotted(layer.specVersion)} ({layer.implementationVersion})"
              for layer in _all(structures.LayerProperties, vk.vkEnumerateInstanceLayerProperties)}
    return {"loader": _dotted(packed.value), "layers": layers}


def _ask_for_portability(vk: ctypes.CDLL, create: structures.InstanceCreateInfo) -> None:
    """Have the instance list drivers without all of Vulkan, where the loader would leave them out."""
    name = b"VK_KHR_portability_enumeration"
    known = _all(structures.ExtensionProperties, vk.vkEnumerateInstanceExtensionProperties, None)
    if name in {found.extensionName for found in known}:
        create.flags = _ENUMERATE_PORTABILITY
        create.enabledExtensionCount = 1
        create.ppEnabledExtensionNames = (c_char_p * 1)(name)


def _check(function: str, result: int) -> None:
    if result not in (_SUCCESS, _INCOMPLETE):  # incomplete: more have come since their number was told
        error = OutOfMemoryError if result in _OUT_OF_MEMORY else DriverError
        raise error(f"the Vulkan driver failed while listing devices: {function}: {_RESULTS.get(result, result)}. "
                    "VK_LOADER_DEBUG=error,driver in the environment shows which driver, VK_DRIVER_FILES names others to take")


def _all(element: type[Any], function: Any, *arguments: Any) -> list[Any]:
    """All that a function of Vulkan's enumerates. It is asked for their number first."""
    count = c_uint32()
    _check(function.__name__, function(*arguments, byref(count), None))
    elements = (element * count.value)()
    _check(function.__name__, function(*arguments, byref(count), elements))
    return list(elements)[:count.value]


def _query(vk: ctypes.CDLL, index: int, handle: c_void_p) -> DeviceInfo | None:
    properties = structures.Properties()
    vk.vkGetPhysicalDeviceProperties(handle, byref(properties))
    version = _version(properties.apiVersion)
    if version < _LEAST_VERSION:
        return None
    extensions = {found.extensionName for found in _all(
        structures.ExtensionProperties, vk.vkEnumerateDeviceExtensionProperties, handle, None)}
    asked = _ask(vk, handle, version, extensions)
    if not asked[structures.SubgroupProperties].subgroupSize:  # not passed on to a driver whose manifest says Vulkan 1.0
        return None
    memory = structures.MemoryProperties()
    vk.vkGetPhysicalDeviceMemoryProperties(handle, byref(memory))
    subgroup, sizes = asked[structures.SubgroupProperties], asked[structures.SubgroupSizeControlProperties]
    driver, limits = asked[structures.DriverProperties], properties.limits
    kind = _TYPES.get(properties.deviceType, "other")
    is_unified = _is_unified(kind, [found.propertyFlags for found in memory.memoryTypes[:memory.memoryTypeCount]])
    return DeviceInfo(
        index=index,
        name=properties.deviceName.decode(),
        type=kind,
        driver=driver.driverName.decode(),
        driver_version=driver.driverInfo.decode() or hex(properties.driverVersion),
        api_version=_dotted(properties.apiVersion),
        subgroup_size=subgroup.subgroupSize,
        subgroup_shuffle=bool(subgroup.supportedStages & _STAGE_COMPUTE
                              and subgroup.supportedOperations & _OPERATIONS_OF_LANES == _OPERATIONS_OF_LANES),
        max_workgroup_invocations=min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]),
        max_workgroup_count=min(limits.maxComputeWorkGroupCount),
        max_shared_memory=limits.maxComputeSharedMemorySize,
        max_storage_buffer_range=min(limits.maxStorageBufferRange, _MOST_BUFFER_BYTES),
        max_storage_buffers=limits.maxPerStageDescriptorStorageBuffers,
        cores=system.cores(),
        vendor=properties.vendorID,
        device_id=properties.deviceID,
        driver_id=driver.driverID,
        compute_units=_compute_units(asked),
        min_subgroup_size=sizes.minSubgroupSize,
        max_subgroup_size=sizes.maxSubgroupSize,
        unified_memory=is_unified,
        memory=_heap_bytes(is_unified, memory),
        storage_buffer_alignment=limits.minStorageBufferOffsetAlignment,
    )


def _version(packed: int) -> tuple[int, int]:
    return packed >> 22 & 0x7f, packed >> 12 & 0x3ff


def _dotted(packed: int) -> str:
    return ".".join(map(str, (*_version(packed), packed & 0xfff)))


def _ask(vk: ctypes.CDLL, handle: c_void_p, version: tuple[int, int], extensions: set[bytes]) -> dict[type[Any], Any]:
    """All of structures.CHAINED, by class. Those that the device does not know, which may not be asked for, hold zeros."""
    asked = {chained: chained(sType=chained.TYPE) for chained in structures.CHAINED}
    last = None
    for chained, found in asked.items():
        if chained.EXTENSION in extensions or (chained.SINCE is not None and version >= chained.SINCE):
            found.pNext, last = last, ctypes.addressof(found)
    vk.vkGetPhysicalDeviceProperties2.restype = None
    vk.vkGetPhysicalDeviceProperties2(handle, byref(structures.Properties2(sType=structures.Properties2.TYPE, pNext=last)))
    return asked


def _compute_units(asked: dict[type[Any], Any]) -> int:
    """The first that is not 0 of what drivers say: those that are switched on, before those that the chip was made with."""
    made = asked[structures.ShaderCoreProperties]
    return (asked[structures.ShaderCoreProperties2].activeComputeUnitCount
            or made.shaderEngineCount * made.shaderArraysPerEngineCount * made.computeUnitsPerShaderArray
            or asked[structures.ShaderSMBuiltinsProperties].shaderSMCount
            or asked[structures.ShaderCoreBuiltinsProperties].shaderCoreCount)


def _is_unified(kind: str, memory_types: Iterable[int]) -> bool:
    """Whether buffers for the host can be the device's own.

    kp's host tensors have the first type of memory that is visible to the host and coherent, and so has the host's copy of its
    device tensors: the host reads both alike, and only the copying differs. A device that is part of the processor has no other
    memory than the processor's, whether or not that first type is called the device's own; that one type is shows that the
    driver does not keep host and device apart. A discrete GPU may show a part of its memory to the host, but that is no reason
    to read inputs, or let the host read, across the bus.
    """
    both = _DEVICE_LOCAL | _HOST_VISIBLE | _HOST_COHERENT
    return kind in ("integrated", "cpu") and any(flags & both == both for flags in memory_types)


def _heap_bytes(is_unified: bool, memory: structures.MemoryProperties) -> int:
    """Bytes of the heap that kp's buffers come from: that of the first type of memory that the host sees or, where the device
    has memory of its own, that is the device's. A GPU in the processor may have set a little aside as its own, but takes any.
    """
    wanted = _HOST_VISIBLE | _HOST_COHERENT if is_unified else _DEVICE_LOCAL
    heaps = [found.heapIndex for found in memory.memoryTypes[:memory.memoryTypeCount] if found.propertyFlags & wanted == wanted]
    return int(memory.memoryHeaps[heaps[0]].size) if heaps else 0
