"""Imitates the functions of CUDA's and HIP's drivers that vkdml calls, for the imitated GPU. They import Vulkan's memory."""

from __future__ import annotations

import itertools
import os
import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from . import Memory, find, idle

_FAILURE, _NO_CONTEXT, _INVALID = 999, 201, 1


class Driver:
    """A driver's library as ctypes would load it. failing: the name of a function without cu or hip, and which of its calls
    fails. has_context: whether this thread has one; else calls fail. imports: how many imported memories are open.
    """

    def __init__(self, uuid: str, pci_address: str, takes_files: bool) -> None:
        self._uuid, self._address, self._takes_files = UUID(uuid).bytes, pci_address.encode(), takes_files
        self.calls: Counter[str] = Counter()
        self.failing: tuple[str, int] = "", 0
        self.has_context = True
        self._files: dict[int, tuple[int, int]] = {}  # of imports, with their bytes
        self._handles = itertools.count(1)

    @property
    def imports(self) -> int:
        return len(self._files)

    def __getattr__(self, name: str) -> Any:
        function = name.removeprefix("cu").removeprefix("hip")
        if not name.startswith(("cu", "hip")):
            raise AttributeError(name)
        return partial(self._call, function)

    def _call(self, function: str, *arguments: Any) -> int:
        self.calls[function] += 1
        if (function, self.calls[function]) == self.failing:
            return _FAILURE
        if not self.has_context and function != "DeviceGet":
            return _NO_CONTEXT
        return _FUNCTIONS[function](self, *[getattr(argument, "_obj", argument) for argument in arguments]) or 0

    def device_get(self, device: Any, ordinal: Any) -> None:
        device.value = ordinal.value

    def device_uuid(self, uuid: Any, device: Any) -> None:
        uuid[:] = self._uuid

    def device_address(self, address: Any, size: Any, device: Any) -> None:
        address.value = self._address

    def import_memory(self, imported: Any, handle: Any) -> int:
        if handle.type != 1 or not 0 < handle.size <= os.fstat(handle.fd).st_size - _begin(handle.fd):
            return _INVALID
        imported.value = next(self._handles)
        self._files[imported.value] = handle.fd if self._takes_files else os.dup(handle.fd), handle.size
        return 0

    def map_buffer(self, pointer: Any, imported: Any, wanted: Any) -> int:
        file, size = self._files[imported.value]
        if wanted.offset + wanted.size > size:
            return _INVALID
        pointer.value = Memory(size, file, _begin(file)).address
        return 0

    def free(self, pointer: Any) -> None:
        idle()
        find(pointer.value).close()

    def destroy_memory(self, imported: Any) -> None:
        os.close(self._files.pop(imported.value)[0])


_FUNCTIONS: dict[str, Callable[..., int | None]] = {
    "DeviceGet": Driver.device_get, "DeviceGetUuid_v2": Driver.device_uuid, "DeviceGetPCIBusId": Driver.device_address,
    "ImportExternalMemory": Driver.import_memory, "ExternalMemoryGetMappedBuffer": Driver.map_buffer,
    "MemFree_v2": Driver.free, "Free": Driver.free, "DestroyExternalMemory": Driver.destroy_memory}


def _begin(file: int) -> int:
    """Return where the memory begins in a file that a Vulkan driver exported. lavapipe's has a header with this offset."""
    size, begin = struct.unpack("QQ", os.pread(file, 16, 0).ljust(16, b"\0"))
    return begin if size == os.fstat(file).st_size and begin < size else 0
