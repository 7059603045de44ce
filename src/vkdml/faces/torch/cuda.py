"""Device memory that CUDA, or HIP, and Vulkan share. Vulkan exports it, and the driver API imports it: by ctypes, from the
library that PyTorch has loaded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from ctypes import Structure, addressof, byref, c_char_p, c_int, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from weakref import finalize

from ...engine.vulkan.memory import DeviceMemory
from ...errors import DriverError

Context = Callable[[], AbstractContextManager[None]]  # makes a device's context this thread's: a new thread has none


class Api(NamedTuple):
    """A programming interface. library: the start of its file's name. prefix, free, uuid: of its functions' names. takes_files:
    whether an import owns the file descriptor. dlpack: DLPack's number of its devices.

    HIP's devices have other UUIDs than Vulkan's, so only PCI addresses match. The slices of a GPU (MIG) share a PCI address, so
    CUDA's devices match by UUIDs only.
    """

    name: str
    library: str
    prefix: str
    free: str
    uuid: str
    takes_files: bool
    dlpack: int


CUDA = Api("CUDA", "libcuda.so", "cu", "MemFree_v2", "DeviceGetUuid_v2", True, 2)
HIP = Api("HIP", "libamdhip64.so", "hip", "Free", "", False, 10)

_ERRORS = {1: "an invalid value", 2: "out of memory", 3: "not initialized", 101: "an invalid device",
           201: "no context in this thread", 304: "of the operating system", 801: "not supported"}
_OPAQUE_FD, _DEDICATED = 1, 1


class _Handle(Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC, with room for the other members of its union."""

    _fields_ = [("type", c_int), ("gap", c_int), ("fd", c_int), ("gap2", c_int * 3), ("size", c_uint64), ("flags", c_uint32),
                ("reserved", c_uint32 * 16)]


class _Range(Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = [("offset", c_uint64), ("size", c_uint64), ("flags", c_uint32), ("reserved", c_uint32 * 16)]


class _DLTensor(Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [("data", c_void_p), ("device_type", c_int), ("device_id", c_int), ("ndim", c_int), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p), ("offset", c_uint64),
                ("context", c_void_p), ("deleter", c_void_p)]


def load(name: str) -> ctypes.CDLL:
    """Return the library that this process has loaded: PyTorch's ROCm wheels bring one. Raises DriverError for none."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = [path for line in lines if (path := line.partition("/")[2]).rpartition("/")[2].startswith(name)]
    if not found:
        raise DriverError(f"PyTorch has not loaded {name}")
    return ctypes.CDLL(f"/{found[0]}")


def call(api: Api, function: str, *arguments: Any) -> None:
    """Call a function. Raises DriverError if it fails."""
    result = getattr(load(api.library), api.prefix + function)(*arguments)
    if result:
        named = _ERRORS.get(result, "see its manual")
        raise DriverError(f"{api.prefix}{function} failed: error {result} of {api.name} ({named})")


def identity(api: Api, ordinal: int, context: Context) -> str:
    """Return the UUID of a device of CUDA, or the PCI address of one of HIP."""
    device, uuid, address = c_int(), (c_uint8 * 16)(), ctypes.create_string_buffer(32)
    with context():
        call(api, "DeviceGet", byref(device), c_int(ordinal))
        if api.uuid:
            call(api, api.uuid, uuid, device)
            return str(UUID(bytes=bytes(uuid)))
        call(api, "DeviceGetPCIBusId", address, c_int(len(address)), device)
    return address.value.decode().lower()


class Imported:
    """Memory that Vulkan exports, in another programming interface, as long as this object lives."""

    def __init__(self, api: Api, ordinal: int, context: Context, memory: DeviceMemory) -> None:
        self._ordinal, self._api, self._size = ordinal, api, memory.size_in_bytes
        fd, size, is_dedicated = memory.gpu.driver.call("exporting memory", memory._tensor.export_memory)
        handle, imported, self._pointer = _Handle(_OPAQUE_FD, 0, fd), c_void_p(), c_void_p()
        handle.size, handle.flags, is_taken = size, _DEDICATED * is_dedicated, False  # the allocation's size
        with context():
            try:
                call(api, "ImportExternalMemory", byref(imported), byref(handle))
                is_taken = api.takes_files
            finally:
                if not is_taken:
                    os.close(fd)
            try:
                call(api, "ExternalMemoryGetMappedBuffer", byref(self._pointer), imported, byref(_Range(0, self._size)))
            except BaseException:
                call(api, "DestroyExternalMemory", imported)
                raise
        finalize(self, _release, api, context, self._pointer, imported, os.getpid()).atexit = False

    def capsule(self) -> Any:
        """Return a DLPack capsule of all bytes. The tensor that is made of it must not outlive this object."""
        self._shape = c_int64(self._size)
        self._tensor = _DLTensor(self._pointer.value, self._api.dlpack, self._ordinal, 1, 1, 8, 1, addressof(self._shape))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)
        return new(addressof(self._tensor), b"dltensor", None)


def _release(api: Api, context: Context, pointer: c_void_p, imported: c_void_p, process: int) -> None:
    if os.getpid() == process:
        with context():
            call(api, api.free, pointer)  # waits for the copies to and from it
            call(api, "DestroyExternalMemory", imported)
