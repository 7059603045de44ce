"""The one module that imports kp: devices, buffers, kernels, and submissions in which dispatches wait for each other."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeVar

import numpy as np

from ..errors import DriverError, InvalidArgumentError
from ..planning.device_info import DeviceInfo
from ..planning.dispatches import Dispatch
from ..planning.profiles import profile
from . import fork, kernels, vulkan
from .kernels import CompiledKernel


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """kp calls logging.basicConfig when it is imported, after which the application's own call would change nothing.

    Meanwhile that function does nothing in this thread. In the other threads it works as always.
    """
    basic_config = logging.basicConfig
    importing: int | None = threading.get_ident()

    def elsewhere(**arguments: Any) -> None:
        if threading.get_ident() != importing:
            basic_config(**arguments)

    logging.basicConfig = elsewhere
    try:
        yield
    finally:
        importing = None  # for those who hold on to this function
        if logging.basicConfig is elsewhere:
            logging.basicConfig = basic_config


try:
    with _logging_left_alone():
        import kp
except ImportError as error:
    if "libvulkan" in str(error):
        raise DriverError(vulkan.NO_LOADER) from None
    raise DriverError(f"Kompute's Python package kp cannot be imported ({error}): run `make setup` in vkdml's source tree, "
                      "or install a wheel of kp 0.9.0") from None


T = TypeVar("T")


def select_device(device: int | str | None) -> DeviceInfo:
    """The device with this index, or else the first whose name contains this.

    By default what the environment variable VKDML_DEVICE says, or else the first GPU, or else the first CPU driver.

    Raises DriverError when there is none or none that matches.
    """
    infos = vulkan.enumerate_devices()
    wanted = os.environ.get("VKDML_DEVICE") if device is None else device
    if wanted is None or wanted == "":
        return vulkan.default_device(infos)
    for info in infos:
        if str(info.index) == str(wanted):
            return info
    for info in infos:
        if isinstance(wanted, str) and wanted.lower() in info.name.lower():
            return info
    listed = ", ".join(f"[{info.index}] {info.name}" for info in infos)
    raise DriverError(f"no Vulkan device {wanted!r}; the devices are {listed}. Choose one by index or name, "
                      "or install its driver")


class Buffer:
    """Device memory for one tensor, and a copy of it that the host can read and write between executions.

    Made by Device.create_buffer. `write` and `read` only touch the host's copy; CommandRecorder.record_upload and
    record_readback bring it to the device and back. `upload` and `download` do both at once. A CPU driver's memory is the
    host's: there is no copy, and uploads and readbacks do nothing.

    After os.fork a child process cannot use it: DriverError.
    """

    def __init__(self, gpu: Gpu, size_in_bytes: int) -> None:
        self.gpu = gpu
        self.size_in_bytes = size_in_bytes
        kind = kp.TensorTypes.host if gpu.host_memory else kp.TensorTypes.device
        self._tensor = _make(lambda: gpu._manager.tensor_t(np.zeros(size_in_bytes // 4, np.uint32), kind))
        self._mapped = self._tensor.data().view(np.uint8)

    @property
    def _bytes(self) -> np.ndarray:
        """The host's copy: the driver's memory, which a child process may not have."""
        fork.check()
        return self._mapped

    def host(self, dtype: Any = np.float32) -> np.ndarray:
        """The host's copy itself as a flat, writable array of a dtype, without bytes at the end that make no whole element."""
        return self._bytes[:self.size_in_bytes // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)

    def write(self, array: np.ndarray) -> None:
        """Copy an array's elements, in C order, to the start of the host's copy.

        Raises InvalidArgumentError if they do not fit, or are not numbers in this machine's byte order.
        """
        flat = np.ascontiguousarray(array).reshape(-1)
        if flat.dtype.hasobject or not flat.dtype.isnative or flat.nbytes > self.size_in_bytes:
            raise InvalidArgumentError("Buffer.write", "array", f"{flat.nbytes} bytes of {flat.dtype}",
                                       f"native numbers, at most {self.size_in_bytes} bytes")
        self._bytes[:flat.nbytes] = flat.view(np.uint8)

    def read(self, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """A new array from the start of the host's copy. Raises InvalidArgumentError for one that is larger."""
        dtype = np.dtype(dtype)
        if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > self.size_in_bytes:
            raise InvalidArgumentError("Buffer.read", "shape and dtype", (*shape, dtype.name),
                                       f"numbers, at most {self.size_in_bytes} bytes")
        return np.ndarray(shape, dtype, self._bytes).copy()

    def upload(self, array: np.ndarray) -> None:
        """`write`, then bring the host's copy to the device. Raises what `write` raises, and DriverError."""
        self.write(array)
        commands = self.gpu.create_commands()
        commands.upload(self)
        commands.execute()

    def download(self, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """Bring the host's copy from the device, then `read`. Raises what `read` raises, and DriverError."""
        commands = self.gpu.create_commands()
        commands.readback(self)
        commands.execute()
        return self.read(shape, dtype)


@dataclass(frozen=True)
class Kernel:
    """A specialized pipeline with its buffers bound. Made by Gpu.create_kernel."""

    compiled: CompiledKernel
    algorithm: Any
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


class Commands:
    """Work recorded once and executed any number of times, in order.

    kp records no barrier between two dispatches, so a dispatch that depends on an earlier one goes to a new submission: the
    wait for the fence between them orders them. Within a submission kp's own barriers order two kinds of pairs: an upload and
    the dispatch that reads it, and a dispatch and the readback of what it wrote.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._submissions: list[Callable[[], object]] = []
        self._checks: list[Callable[[], None]] = []
        self._start_submission()

    def _start_submission(self) -> None:
        self._uploaded: set[Buffer] = set()
        self._read: set[Buffer] = set()
        self._written: set[Buffer] = set()
        self._copied: set[Buffer] = set()
        self._sequence: Any = None

    def _record(self, operation: Any) -> None:
        if self._sequence is None:
            self._sequence = _make(self._gpu._manager.sequence)
            self._submissions.append(self._sequence.eval)
        _driver_call(lambda: self._sequence.record(operation))

    def before_execute(self, check: Callable[[], None]) -> None:
        """Call `check` at each execution, before any work; it raises to refuse."""
        self._checks.append(check)

    def upload(self, buffer: Buffer) -> None:
        if self._gpu.host_memory:
            return
        if buffer in self._uploaded | self._read | self._written | self._copied:
            self._start_submission()
        self._record(kp.OpTensorSyncDevice([buffer._tensor]))
        self._uploaded.add(buffer)

    def dispatch(self, kernel: Kernel, push: Mapping[str, int]) -> None:
        """push: the push constants, by their names in the shader."""
        touched_before = self._uploaded | self._read | self._written | self._copied
        if kernel.reads & self._written or kernel.writes & touched_before:
            self._start_submission()
        self._record(kp.OpAlgoDispatch(kernel.algorithm, np.array(kernel.compiled.push_words(push), np.uint32)))
        self._read |= kernel.reads
        self._written |= kernel.writes

    def readback(self, buffer: Buffer) -> None:
        if self._gpu.host_memory:
            return
        if buffer in self._uploaded | self._copied:
            self._start_submission()
        self._record(kp.OpTensorSyncLocal([buffer._tensor]))
        self._copied.add(buffer)

    def call(self, work: Callable[[], None]) -> None:
        """Call `work` at this place of each execution, after what was recorded before it has ended."""
        self._start_submission()
        self._submissions.append(work)

    @property
    def submissions(self) -> int:
        """How many an execution makes, calls among them."""
        return len(self._submissions)

    def execute(self) -> None:
        """Run all of it and wait. Raises what the checks and the calls raise, and DriverError when the driver fails."""
        with self._gpu.lock:
            for check in self._checks:
                check()
            for submit in self._submissions:
                _driver_call(submit)


class Gpu:
    """One opened Vulkan device."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.host_memory = profile(info).host_memory
        self.lock = fork.Lock()  # nothing in kp is thread-safe
        fork.begin()
        self._manager = _make(lambda: kp.Manager(info.index))
        self._placeholder = Buffer(self, 16)  # bound where an optional tensor is left out; no kernel touches it

    def create_commands(self) -> Commands:
        """With nothing recorded."""
        return Commands(self)

    def create_kernel(self, dispatch: Dispatch, buffers: Mapping[str, Buffer],
                      compiled: CompiledKernel | None = None) -> Kernel:
        """A pipeline for a dispatch, and for those that differ from it in push constants only.

        buffers: by the plan's names. compiled: what the dispatch runs; by default the shipped kernel of its name.
        """
        compiled = compiled or kernels.load(dispatch.kernel)
        spirv = compiled.specialize(dispatch.constants)
        bound = compiled.order({block: buffers[name] for block, name in dispatch.buffers.items()}, self._placeholder)
        algorithm = _make(lambda: self._manager.algorithm(
            [buffer._tensor for buffer in bound], spirv, list(dispatch.groups), np.zeros(0, np.uint32),
            np.zeros(len(compiled.interface.push), np.uint32)))
        writes = frozenset(buffers[name] for name in dispatch.writes)
        return Kernel(compiled, algorithm, frozenset(bound) - {self._placeholder} - writes, writes)


_open: dict[tuple[int, str, str], Gpu] = {}
_opening = fork.Lock()


def open_device(info: DeviceInfo) -> Gpu:
    """The process's one Gpu for a device, so that buffers can pass between all that use it."""
    with _opening:
        key = info.index, info.name, info.driver  # its other facts may change: cores with the process's affinity
        if key not in _open:
            _open[key] = Gpu(info)
        return _open[key]


def _make(call: Callable[[], T]) -> T:
    """An object of kp's."""
    return fork.keep(_driver_call(call))


def _driver_call(call: Callable[[], T]) -> T:
    """Call kp. What it raises becomes a DriverError."""
    fork.check()
    try:
        return call()
    except DriverError:  # of a call that executes other commands
        raise
    except (RuntimeError, MemoryError) as error:
        raise DriverError(f"the Vulkan driver failed: {str(error).strip() or type(error).__name__}") from error


def kp_description() -> str:
    """Which kp is installed, and what it lacks without vkdml's patches."""
    lacks = [consequence for has, consequence in (
        (hasattr(kp, "OpMemoryBarrier"), "one submission for each dispatch that depends on another"),
        (hasattr(kp.Manager, "algorithm_from"), "one pipeline for each set of buffers, failures of the driver unnoticed"),
    ) if not has]
    installed = f"kp {metadata.version('kp')}"
    return f"{installed} without vkdml's patches (`make wheels`): {', '.join(lacks)}" if lacks else installed
