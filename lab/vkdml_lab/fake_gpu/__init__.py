"""An imitated GPU, which is PyTorch's device "fake". By it, tests on any machine check how vkdml uses tensors of a GPU.

The host cannot access a tensor's address, and reads its bytes in a second mapping. Each stream is a thread that does its work
in order and with a delay. Freed memory becomes NaN. So work in a wrong order gives wrong numbers. PyTorch's own operators run
on the host after the stream's pending work. The device stays registered for the rest of the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import sys
import threading
import time
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.dlpack import from_dlpack

NAME = "fake"
DEVICES = 2

copies: Counter[str] = Counter()  # by direction: "from host", "to host", "on device"
delay = 0.0005  # seconds that a stream waits before each piece of work
pinned: set[int] = set()  # addresses of the host's memory that copies reach without the host

_CODES = {torch.bool: 6, torch.bfloat16: 4, torch.uint8: 1,
          **dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64), 0),
          **dict.fromkeys((torch.float16, torch.float32, torch.float64), 2)}  # DLPack's codes of types
_NO_ACCESS = 0
_EXTENSION = 12  # DLPack's number of PyTorch's devices without a name of their own

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Memory:
    """A block of the device's memory. address: where tensors are; the host cannot access it. bytes: what it contains."""

    def __init__(self, size: int, file: int | None = None, offset: int = 0) -> None:
        """Map `size` bytes of a file, beginning at `offset`. file: its descriptor, or None for a new file."""
        made = os.memfd_create("fake GPU") if file is None else os.dup(file)
        try:
            if file is None:
                os.ftruncate(made, size)
            self.size, self.bytes = size, mmap.mmap(made, size, offset=offset)
            self.address: int = _libc.mmap(None, size, _NO_ACCESS, mmap.MAP_SHARED, made, offset)
        finally:
            os.close(made)
        with _lock:
            _memories[self.address] = self
            _addresses.insert(bisect_right(_addresses, self.address), self.address)

    def close(self) -> None:
        with _lock:
            del _memories[self.address]
            _addresses.remove(self.address)
        _libc.munmap(self.address, self.size)

    def free(self) -> None:
        """Make the current stream, after its pending work, overwrite this memory with NaN and unmap it."""
        def work() -> None:
            self.bytes[:] = b"\xff" * self.size
            self.close()

        current().put(work)


_lock = threading.RLock()
_memories: dict[int, Memory] = {}  # by address
_addresses: list[int] = []


class Event:
    """A point in a stream's work. `wait` returns when the stream has come to this point."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self.set, self.wait, self.synchronize = self._done.set, self._done.wait, self._done.wait


class Stream:
    """A queue of functions. A thread calls them in order, each after a delay, so that missing synchronization shows."""

    def __init__(self, number: int | None = None) -> None:
        self.number = next(_numbers) if number is None else number
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            time.sleep(delay)
            with torch.inference_mode():  # in which all tensors may be written to
                work()
            del work

    def put(self, work: Callable[[], object]) -> None:
        self._work.put(work)

    def synchronize(self) -> None:
        self.record_event().wait()

    def query(self) -> bool:
        return self._work.empty()

    def record_event(self) -> Event:
        event = Event()
        self.put(event.set)
        return event

    def wait_event(self, event: Event) -> None:
        self.put(event.wait)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())


_numbers = iter(range(1, 2**30))
_of_thread = threading.local()
_default = cache(lambda: Stream(0))


def current(_: object = None) -> Stream:
    """Return the stream that does this thread's work on the device."""
    return getattr(_of_thread, "stream", None) or _default()


@contextmanager
def stream(one: Stream) -> Iterator[None]:
    """Make `one` the stream that does this thread's work, inside the context."""
    before, _of_thread.stream = current(), one
    try:
        yield
    finally:
        _of_thread.stream = before


class _DLTensor(ctypes.Structure):
    """The C structure DLManagedTensor of DLPack."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int), ("ndim", ctypes.c_int),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


_made: list[Any] = []  # PyTorch reads a capsule's contents once more after the tensor's end


def _tensor(memory: Memory, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, index: int) -> Tensor:
    """Make a tensor in a block of the device's memory, which is freed with its last tensor. index: the device's number."""
    sizes, strides = ((ctypes.c_int64 * len(given))(*given) for given in (size, stride))
    made = _DLTensor(data=memory.address, device_type=_EXTENSION, device_id=index, ndim=len(size), code=_CODES[dtype],
                     bits=8 * dtype.itemsize, lanes=1, shape=ctypes.addressof(sizes), strides=ctypes.addressof(strides))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    tensor: Tensor = from_dlpack(new(ctypes.addressof(made), b"dltensor", None))
    _made.append((made, sizes, strides))
    finalize(tensor.untyped_storage(), memory.free).atexit = False
    return tensor


def _empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, layout: Any = None,
                   device: torch.device | None = None, pin_memory: Any = None) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    last = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride))
    return _tensor(Memory(max(last * dtype.itemsize, 1)), size, stride, dtype, device.index or 0 if device else 0)


def _empty(size: Sequence[int], *, memory_format: Any = None, **options: Any) -> Tensor:
    return _empty_strided(size, torch.empty(size, device="meta").stride(), **options)


def _as_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    offset = self.storage_offset() if offset is None else offset
    return _set(torch.ops.aten.alias.default(self), self.untyped_storage(), offset, size, stride)


def _set(self: Tensor, storage: Any, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Make a tensor a view of a storage, by PyTorch's function for CPU tensors. offset: in elements."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return torch.ops.aten.set_.source_Storage_storage_offset.redispatch(keys, self, storage, offset, size, stride)


def _view(self: Tensor, size: Sequence[int]) -> Tensor:
    return _as_strided(self, *_sized(torch.empty_strided(self.shape, self.stride(), device="meta").view(size)))


def _sized(tensor: Tensor) -> tuple[Sequence[int], Sequence[int]]:
    return tensor.shape, tensor.stride()


def find(address: int) -> Memory:
    """Return the block of the device's memory that contains an address. Raises RuntimeError if there is none."""
    with _lock:
        memory = _memories[_addresses[bisect_right(_addresses, address) - 1]]
    if not 0 <= address - memory.address < memory.size:
        raise RuntimeError("fake: an address that is no memory of the device")
    return memory


def seen(tensor: Tensor) -> Tensor:
    """Return a tensor of the host that shares the bytes of a device's tensor."""
    if not tensor.numel():
        return torch.empty_strided(*_sized(tensor), dtype=tensor.dtype)
    memory = find(tensor.data_ptr())
    begin = tensor.data_ptr() - memory.address
    count = (memory.size - begin) // tensor.itemsize
    return torch.frombuffer(memory.bytes, dtype=tensor.dtype, count=count, offset=begin).as_strided(*_sized(tensor))


def _copy_from(self: Tensor, dst: Tensor, non_blocking: bool = False) -> Tensor:
    copies["from host" if self.is_cpu else "to host" if dst.is_cpu else "on device"] += 1
    source, target = (tensor.detach() if tensor.is_cpu else seen(tensor) for tensor in (self, dst))
    of_host = self if self.is_cpu else dst
    is_late = not of_host.is_cpu or (non_blocking and of_host.untyped_storage().data_ptr() in pinned)
    if self.is_cpu and not is_late:
        source = source.clone()
    current().put(lambda: target.copy_(source))
    if not is_late:
        current().synchronize()
    return dst


def _item(self: Tensor) -> Any:
    return self.cpu().item()


def _on_host(operator: Any, *arguments: Any, **named: Any) -> Any:
    current().synchronize()
    device, ours = torch.device(NAME, 0), {}

    def to_host(value: Any) -> Any:
        nonlocal device
        if isinstance(value, Tensor) and value.device.type == NAME:
            device, host = value.device, seen(value)
            ours[id(host)] = value, host
            return host
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def to_device(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        own, _ = ours.get(id(value), (None, None))
        if own is not None and own.shape != value.shape:  # PyTorch gives `out` a new size
            own.data = value.to(device)
        return value.to(device) if own is None else own

    return tree_map(to_device, operator(*tree_map(to_host, arguments), **tree_map(to_host, named)))


def idle() -> None:
    """Wait until this thread's stream has done all of its work."""
    current().synchronize()


@contextmanager
def _device(_: object) -> Iterator[None]:
    yield


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, index: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


@cache
def install() -> list[Any]:
    """Register the device with PyTorch. The caller must keep the returned objects as long as the device is used."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    module = types.ModuleType(f"torch.{NAME}")
    vars(module).update(
        Stream=Stream, stream=stream, current_stream=current, device=_device, synchronize=lambda _=None: idle(),
        is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: DEVICES, current_device=lambda: 0,
        _is_in_bad_fork=lambda: False, manual_seed_all=lambda seed: None,
        get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16])
    sys.modules[module.__name__] = module
    _setup_privateuseone_for_python_backend(NAME, module, _Hooks())
    aten, rest = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    for name, kernel in {"empty.memory_format": _empty, "empty_strided": _empty_strided, "as_strided": _as_strided,
                         "view": _view, "_reshape_alias": _as_strided, "set_.source_Storage_storage_offset": _set,
                         "_copy_from": _copy_from, "_local_scalar_dense": _item}.items():
        aten.impl(name, kernel, "PrivateUse1")
    rest.fallback(_on_host, "PrivateUse1")
    rest.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    return [aten, rest]
