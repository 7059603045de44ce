"""Reads facts about a device for reports, beyond those in DeviceInfo. vkdml itself does not use them."""

from __future__ import annotations

import ctypes
from ctypes import Structure, byref, c_char, c_char_p, c_uint32, c_void_p
from typing import Any

from vkdml import DeviceInfo
from vkdml_lab.internals import queries, structures, system

# VkMemoryPropertyFlagBits and VkQueueFlagBits, from the lowest bit on
_MEMORY = ("DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED", "LAZILY_ALLOCATED", "PROTECTED", "DEVICE_COHERENT",
           "DEVICE_UNCACHED", "RDMA_CAPABLE")
_QUEUES = ("GRAPHICS", "COMPUTE", "TRANSFER", "SPARSE_BINDING", "PROTECTED", "VIDEO_DECODE", "VIDEO_ENCODE", "", "OPTICAL_FLOW")

# VkComponentTypeKHR and VkScopeKHR
_COMPONENTS = {0: "float16", 1: "float32", 2: "float64", 3: "int8", 4: "int16", 5: "int32", 6: "int64", 7: "uint8", 8: "uint16",
               9: "uint32", 10: "uint64", 1000141000: "bfloat16", 1000491002: "float8_e4m3", 1000491003: "float8_e5m2"}
_SCOPES = {1: "device", 2: "workgroup", 3: "subgroup", 5: "queue family"}


class Float16Int8Features(structures.Chained):
    TYPE, SINCE, EXTENSION = 1000082000, (1, 2), b"VK_KHR_shader_float16_int8"
    _fields_ = structures.words("shaderFloat16", "shaderInt8")


class VulkanMemoryModelFeatures(structures.Chained):
    TYPE, SINCE, EXTENSION = 1000211000, (1, 2), b"VK_KHR_vulkan_memory_model"
    _fields_ = structures.words(
        "vulkanMemoryModel", "vulkanMemoryModelDeviceScope", "vulkanMemoryModelAvailabilityVisibilityChains")


class IntegerDotProductFeatures(structures.Chained):
    TYPE, SINCE, EXTENSION = 1000280000, (1, 3), b"VK_KHR_shader_integer_dot_product"
    _fields_ = structures.words("shaderIntegerDotProduct")


class CooperativeMatrixFeatures(structures.Chained):
    TYPE, EXTENSION = 1000506000, b"VK_KHR_cooperative_matrix"
    _fields_ = structures.words("cooperativeMatrix", "cooperativeMatrixRobustBufferAccess")


class CooperativeMatrixProperties(Structure):
    """VkCooperativeMatrixPropertiesKHR: sizes and types of matrices that a device multiplies by one instruction."""

    TYPE = 1000506001
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), *[(name, c_uint32) for name in (
        "MSize", "NSize", "KSize", "AType", "BType", "CType", "ResultType", "saturatingAccumulation", "scope")]]


class LayerProperties(Structure):
    _fields_ = [("layerName", c_char * 256), ("specVersion", c_uint32), ("implementationVersion", c_uint32),
                ("description", c_char * 256)]


_FEATURES: tuple[type[structures.Chained], ...] = (
    *structures.FEATURES, Float16Int8Features, VulkanMemoryModelFeatures, IntegerDotProductFeatures, CooperativeMatrixFeatures)


def loader() -> dict[str, Any]:
    """Return the Vulkan loader's version, and those of each layer that it finds, by name: "Vulkan's (the layer's own)"."""
    vk, packed = system.load_vulkan(), c_uint32()
    vk.vkEnumerateInstanceVersion(byref(packed))
    layers = {layer.layerName.decode(): f"{queries.dotted(layer.specVersion)} ({layer.implementationVersion})"
              for layer in queries.enumerated(LayerProperties, vk.vkEnumerateInstanceLayerProperties)}
    return {"loader": queries.dotted(packed.value), "layers": layers}


def memory_types(info: DeviceInfo) -> list[dict[str, Any]]:
    """Return one row for each memory type of the device. "taken" lists vkdml's uses of it: "host" (read and written by the
    host), "device" (used only by kernels), "upload" and "direct" (large and small inputs of a discrete GPU).
    """
    with queries.physical_devices() as (vk, _, handles):
        memory, flags = queries.memory_of(vk, handles[info.index])
    taken = {"host": info.host_memory_type, "device": queries.device_memory_type(flags),
             **({} if info.unified_memory else {"upload": info.upload_memory_type, "direct": info.direct_memory_type})}
    return [{"type": index, "flags": _names(given, _MEMORY), "heap": memory.memoryTypes[index].heapIndex,
             "heap bytes": int(memory.memoryHeaps[memory.memoryTypes[index].heapIndex].size),
             "taken": [use for use, chosen in taken.items() if chosen == index]} for index, given in enumerate(flags)]


def queue_families(info: DeviceInfo) -> list[dict[str, Any]]:
    """Return one row for each queue family of the device. "taken" is True for the family that vkdml uses."""
    with queries.physical_devices() as (vk, _, handles):
        families = queries.queue_families_of(vk, handles[info.index])
    return [{"family": index, "flags": _names(family.queueFlags, _QUEUES), "queues": family.queueCount,
             "taken": index == info.queue_family} for index, family in enumerate(families)]


def device_facts(info: DeviceInfo) -> dict[str, Any]:
    """Return facts about a device by the names that reports print: features, extensions and cooperative matrices."""
    with queries.physical_devices() as (vk, instance, handles):
        handle, properties = handles[info.index], structures.Properties()
        vk.vkGetPhysicalDeviceProperties(handle, byref(properties))
        extensions = queries.extensions_of(vk, handle)
        asked = queries.ask(vk, handle, queries.version_of(properties.apiVersion), extensions, _FEATURES)
        matrices = asked[CooperativeMatrixFeatures].cooperativeMatrix
        shapes = _cooperative_matrices(vk, instance, handle) if matrices else []
    floats, model = asked[Float16Int8Features], asked[VulkanMemoryModelFeatures]
    return {
        "driver UUID": bytes(asked[structures.IDProperties].driverUUID).hex(),
        "float16": bool(floats.shaderFloat16),
        "int8": bool(floats.shaderInt8),
        "16-bit storage": info.storage_16bit,
        "integer dot product": bool(asked[IntegerDotProductFeatures].shaderIntegerDotProduct),
        "subgroup-size control": info.subgroup_size_control,
        "full subgroups": bool(asked[structures.SubgroupSizeControlFeatures].computeFullSubgroups),
        "Vulkan memory model": bool(model.vulkanMemoryModel),
        "Vulkan memory model, device scope": bool(model.vulkanMemoryModelDeviceScope),
        "cooperative matrices": shapes,
        "extensions": sorted(name.decode() for name in extensions),
    }


def _names(flags: int, names: tuple[str, ...]) -> list[str]:
    """Return the names of the bits that are set in `flags`. A bit without a name is given as a hexadecimal number."""
    bits = [bit for bit in range(32) if flags >> bit & 1]
    return [names[bit] if bit < len(names) and names[bit] else hex(1 << bit) for bit in bits]


def _cooperative_matrices(vk: ctypes.CDLL, instance: c_void_p, handle: c_void_p) -> list[dict[str, Any]]:
    """Return one row for each size of matrices that an instruction multiplies, with the types of A, B, C and the result."""
    vk.vkGetInstanceProcAddr.restype = c_void_p
    address = vk.vkGetInstanceProcAddr(instance, c_char_p(b"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"))
    if not address:
        return []
    function, count = ctypes.CFUNCTYPE(ctypes.c_int32, c_void_p, c_void_p, c_void_p)(address), c_uint32()
    function(handle, byref(count), None)
    shapes = (CooperativeMatrixProperties * count.value)(*[
        CooperativeMatrixProperties(sType=CooperativeMatrixProperties.TYPE) for _ in range(count.value)])
    function(handle, byref(count), shapes)
    return [{"M N K": [found.MSize, found.NSize, found.KSize],
             "A B C result": [_COMPONENTS.get(of, of) for of in (found.AType, found.BType, found.CType, found.ResultType)],
             "saturates": bool(found.saturatingAccumulation), "scope": _SCOPES.get(found.scope, found.scope)}
            for found in shapes[:count.value]]
