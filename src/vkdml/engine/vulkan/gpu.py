"""The one module that imports kp: devices, buffers, kernels and submissions."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import finalize

import numpy as np

from ...errors import DriverError, InvalidArgumentError, OutOfMemoryError, expect_no_thread, shown
from ...planning.device_info import DeviceInfo
from ...planning.dispatches import Dispatch
from . import spirv, system
from .driver import Background, Driver
from .files import PipelineFile
from .memory import DIRECT, OWN, SENT, SHARED, Bound, DeviceMemory, Kind, Range
from .queries import Enabled, default_device, enumerate_devices
from .spirv import CompiledKernel
from .store import DEFAULT_LIMIT, Lease, Memory, Store

KP_VERSION = "0.9.0+vkdml.11"  # Kompute's version and the number of our patches; the build writes it into kp
_INSTALL_KP = "install vkdml again, from its wheel for this Python or by `make setup` in its source tree"

try:
    from . import _kp as kp
except ImportError as error:
    if "libvulkan" not in str(error):  # without the loader, listing the devices raises before kp is needed
        raise DriverError("Kompute's Python package kp, a part of vkdml, cannot be imported "
                          f"({error}): {_INSTALL_KP}") from None
else:
    if kp.__version__ != KP_VERSION:
        raise DriverError(f"kp {kp.__version__} was built into vkdml, but it needs kp {KP_VERSION}: {_INSTALL_KP}")


T = TypeVar("T")

_log = logging.getLogger(__name__)


def select_device(device: int | str | None) -> DeviceInfo:
    """Return the device with an index, a UUID or a PCI address, or the first whose name contains `device`. None takes the
    environment variable VKDML_DEVICE, else the first GPU, else the first CPU driver.

    Raises DriverError if no device matches, InvalidArgumentError for neither a number nor a string.
    """
    if isinstance(device, bool) or not isinstance(device, int | np.integer | str | None):
        raise InvalidArgumentError("Device", "device", type(device).__name__,
                                   "its index, UUID, PCI address, a part of its name or None")
    infos = enumerate_devices()
    wanted = os.environ.get("VKDML_DEVICE") if device is None else device
    if wanted is None or wanted == "":
        return default_device(infos)
    best = max(infos, key=lambda info: info.answers_to(wanted))
    if not best.answers_to(wanted):
        raise DriverError(f"no Vulkan device {shown(wanted)}; the devices are {_listed(infos)}. Choose one by index, UUID, PCI "
                          "address or name, or install its driver")
    return best


def select_again(index: int, name: str) -> DeviceInfo:
    """Return the device that another process selected: the one with this index and name, or else the first with this name.

    Raises DriverError if there is none.
    """
    infos = enumerate_devices()
    found = [info for info in infos if info.name == name]
    if not found:
        raise DriverError(f"no Vulkan device {name!r}, which a pickled object names; the devices are {_listed(infos)}. Give "
                          "the object no device, or an index, before it is pickled: each process then takes its own")
    return next((info for info in found if info.index == index), found[0])


def _listed(infos: Iterable[DeviceInfo]) -> str:
    return ", ".join(f"[{info.index}] {info.name}" for info in infos)


class Kernel(NamedTuple):
    """A pipeline with bound buffers and a number of workgroups. Made by Gpu.create_kernel.

    tensors: kp's tensors, whose memory counts while they are held. bound: a part of a buffer for each binding. reads: buffers
    that it only reads. writes: parts of buffers that it writes.
    """

    compiled: CompiledKernel
    algorithm: Any
    tensors: Sequence[Any]
    dispatch: Dispatch
    bound: tuple[Bound, ...]
    reads: frozenset[DeviceMemory]
    writes: frozenset[Bound]


class Submission:
    """Operations that go to the driver in one call and start in recorded order. Made by Gpu.create_submission.

    An operation that depends on an earlier one needs a barrier between them. kp records two kinds of barriers itself: between
    an upload and a dispatch that reads the buffer, and between a dispatch and the readback of the buffer that it wrote.
    """

    def __init__(self, gpu: Gpu, sequence: Any = None) -> None:
        self._gpu, self._driver = gpu, gpu.driver
        self._sequence = sequence or gpu.driver.make("making a submission", gpu._manager.sequence)
        self._new: dict[str, None] = {}  # kernels not run yet; some drivers compile them in the first run
        self._copied: list[Any] = []  # kp's tensors, whose memory counts while they are held

    def upload(self, buffer: DeviceMemory, size: int | None = None) -> None:
        """Record a copy to the device. size: bytes from the start of the buffer; None: all."""
        self._copy(kp.OpTensorSyncDevice, buffer, size)

    def readback(self, buffer: DeviceMemory, size: int | None = None) -> None:
        """Record a copy to the host. size: as for `upload`."""
        self._copy(kp.OpTensorSyncLocal, buffer, size)

    def _copy(self, operation: Callable[[list[Any], int], Any], buffer: DeviceMemory, size: int | None) -> None:
        self._copied.append(buffer._tensor)
        self._record(lambda: operation(self._copied[-1:], size or buffer.size_in_bytes))

    def dispatch(self, kernel: Kernel, push: Mapping[str, int]) -> None:
        """Record a dispatch. push: the push constants, by their names in the shader."""
        words = np.array(kernel.compiled.push_words(push), np.uint32)
        self._new[kernel.compiled.name] = None
        self._record(lambda: kp.OpAlgoDispatch(kernel.algorithm, words))

    def barrier(self, buffers: Iterable[DeviceMemory]) -> None:
        """Make later operations wait for all earlier ones on these buffers."""
        tensors = [buffer._tensor for buffer in buffers]
        self._record(lambda: kp.OpMemoryBarrier(tensors, _ACCESSES, _ACCESSES, _STAGES, _STAGES))

    def show(self, buffers: Iterable[DeviceMemory]) -> None:
        """Let the host read what dispatches wrote to these buffers, once the submission has ended."""
        tensors = [buffer._tensor for buffer in buffers]
        self._record(lambda: kp.OpMemoryBarrier(tensors, _SHADER_WRITE, _HOST_READ, _COMPUTE_SHADER, _HOST))

    def acquire(self, buffers: Iterable[DeviceMemory]) -> None:
        """Take the ownership of shared memory that another API has written to."""
        self._hand_over(buffers, (0, _ACCESSES, _TOP, _STAGES), _EXTERNAL, self._gpu.info.queue_family)

    def release(self, buffers: Iterable[DeviceMemory]) -> None:
        """Give it up again, for another API to read and write."""
        self._hand_over(buffers, (_ACCESSES, 0, _STAGES, _BOTTOM), self._gpu.info.queue_family, _EXTERNAL)

    def _hand_over(self, buffers: Iterable[DeviceMemory], scopes: tuple[int, ...], source: int, target: int) -> None:
        tensors = [buffer._tensor for buffer in buffers]
        self._record(lambda: kp.OpMemoryBarrier(tensors, *scopes, src_queue_family=source, dst_queue_family=target))

    def _record(self, operation: Callable[[], Any]) -> None:
        self._driver.call("recording a submission", lambda: self._sequence.record(operation()))

    def run(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Run it and wait for its end. meanwhile: as of Driver.run. Raises DriverError when the driver fails."""
        if not self._new:
            return self._driver.run(self._sequence, meanwhile)
        with self._gpu.saying(self._new):
            self._driver.run(self._sequence, meanwhile)
        self._new.clear()


# VkAccessFlagBits and VkPipelineStageFlagBits; _ACCESSES and _STAGES cover shaders and copies
_SHADER_READ, _SHADER_WRITE, _TRANSFER_READ, _TRANSFER_WRITE, _HOST_READ = 0x20, 0x40, 0x800, 0x1000, 0x2000
_TOP, _COMPUTE_SHADER, _TRANSFER, _BOTTOM, _HOST = 0x1, 0x800, 0x1000, 0x2000, 0x4000
_EXTERNAL = 0xfffffffe  # VK_QUEUE_FAMILY_EXTERNAL
_ACCESSES, _STAGES = _SHADER_READ | _SHADER_WRITE | _TRANSFER_READ | _TRANSFER_WRITE, _COMPUTE_SHADER | _TRANSFER


class Gpu(system.OfOneProcess):
    """One opened Vulkan device.

    store: what is kept between calls. memory: the budget. host_memory: whether the device works in the host's memory, without
    copies. only_written_types: of memory, by kind. driver: calls kp. compilers: threads; CPU drivers took longer with several.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self.info, self.host_memory = info, info.unified_memory
        self.only_written_types: dict[Kind, int] = {SENT: info.upload_memory_type, DIRECT: info.direct_memory_type}
        self.store = Store(DEFAULT_LIMIT)
        self.driver = Driver(info.name, self.store.clear, info.is_cpu)
        self.lock = self.driver.lock  # a queue takes one submission at a time
        self.memory = Memory(info, self.store)
        self.pipelines_made, self.compilers = 0, 1 if info.is_cpu else info.cores
        self.once_cache: dict[Any, dict[Any, Any]] = {}  # results by function; see OnceForEachGpu
        self._background = Background()
        self._idle: Any = None  # kp's sequence of the last run_once
        system.begin()
        self._features, self._pipeline_file = Enabled(info), PipelineFile(info)
        host_memory = {"host_memory_type": info.host_memory_type} if info.host_memory_type >= 0 else {}
        self._manager = self.driver.open(lambda: kp.Manager(
            info.index, [info.queue_family], self._features.extensions, features=self._features.address,
            pipeline_cache_data=self._pipeline_file.read(), **host_memory))
        self._placeholder = DeviceMemory(self, 16)  # bound to bindings that no kernel touches
        _log.info("opened %s (%s %s), with at most %d bytes for buffers", info.name, info.driver, info.driver_version,
                  self.memory.limit)

    def bytes_of(self, size: int, kind: Kind) -> int:
        """Return the bytes to allocate for memory of a kind, with the host's copy. Direct memory may become copied memory."""
        return size * (1 + (kind not in (OWN, SHARED) and not self.host_memory))

    def make_tensor(self, size_in_bytes: int, kind: Kind) -> Any:
        """Make kp's tensor for DeviceMemory."""
        for_host = kp.TensorTypes.host if self.host_memory or kind == DIRECT else kp.TensorTypes.device
        where = [self.only_written_types[kind]] if kind in self.only_written_types else []
        # kp takes an array, but only its size for a storage tensor: np.empty touches no page of memory
        alone = {OWN: kp.TensorTypes.storage, SHARED: kp.TensorTypes.shared}
        words, tensor_type = (np.empty, alone[kind]) if kind in alone else (np.zeros, for_host)
        return self.driver.make(f"making a buffer of {size_in_bytes} bytes",
                                lambda: self._manager.tensor_t(words(size_in_bytes // 4, np.uint32), tensor_type, *where))

    def keep_open_for(self, tensor: object) -> None:
        """Keep kp's manager open until a tensor is destroyed, as its memory goes with the manager."""
        finalize(tensor, id, self._manager).atexit = False  # holds the manager, as an argument of `id`

    def keep(self, key: Hashable, make: Callable[[], T], size: int, lease: Lease) -> T:
        """Return a value of the store that is device memory. If it is made now, the store drops others to make room for it."""
        def make_in_room() -> T:
            self.memory.free(size, lease)
            return self.made(make, lease)

        return self.store.get(key, make_in_room, size, lease, is_memory=True)

    def made(self, make: Callable[[], T], lease: Lease | None = None) -> T:
        """Call `make`, which allocates device memory. If the driver has none left, drop all of the store's but the lease's, and
        call it once more.
        """
        try:
            return make()
        except OutOfMemoryError as error:
            _log.info("trying again without what is kept: %s", error)
        self.store.drop_memory(lambda: False, lease)  # outside of the handler: the error holds what `make` allocated
        return make()

    def run_in_background(self, work: Callable[[], None]) -> Future[None]:
        """Run a function in the device's own thread, after those passed before."""
        system.check()
        try:
            return self._background.submit(work)
        except RuntimeError as error:
            expect_no_thread(error)
            raise DriverError(f"the system gave no thread for the device's executions: {error}; end some "
                              "threads, or raise the limit (ulimit -u)") from error

    def saying(self, kernels: Iterable[str]) -> AbstractContextManager[None]:
        """Return a context in which the driver may compile kernels. If all of a call take long, a terminal gets a line."""
        return self.lock.notice.after(
            _LONG_SECONDS, f"vkdml: {self.info.driver} is compiling {', '.join(kernels)}, once for all calls of this size; "
            "warm_up() of a layer, session or module does it before the first call")

    def create_submission(self) -> Submission:
        """Return a new, empty submission."""
        return Submission(self)

    def run_once(self, record: Callable[[Submission], None]) -> None:
        """Run a submission that `record` fills. The next one reuses kp's sequence: some drivers take 0.5 ms to make one."""
        sequence, self._idle = self._idle, None
        submission = Submission(self, sequence)
        record(submission)
        submission.run()
        submission._sequence.clear()
        self._idle = submission._sequence

    def create_kernel(self, dispatch: Dispatch, buffers: Mapping[str, Bound], compiled: CompiledKernel | None = None,
                      lease: Lease | None = None) -> Kernel:
        """Return a kernel for a dispatch and for all that differ from it in push constants only.

        buffers: by their names in the plan. compiled: by default the shipped kernel of the dispatch. lease: keeps the pipeline.
        """
        compiled = compiled or spirv.load(dispatch.kernel)
        # Validation would report the placeholder as a race in the place of an optional tensor, which no kernel touches. So a
        # buffer is bound that the dispatch writes and a barrier already orders.
        left_out = buffers[dispatch.writes[0]] if dispatch.writes else self._placeholder
        bound = compiled.order({block: buffers[name] for block, name in dispatch.buffers.items()}, left_out)
        tensors, groups = [one.buffer._tensor for one in bound], list(dispatch.groups)
        parts = [[(one.offset, one.size_in_bytes) for one in bound]] if any(isinstance(one, Range) for one in bound) else []
        pipeline = self._pipeline(lease, compiled, dispatch)
        algorithm = self.driver.make(f"binding buffers to {dispatch.kernel}", lambda: self._manager.algorithm_from(
            pipeline, tensors, groups, *parts))
        writes = frozenset(buffers[name] for name in dispatch.writes)
        reads = frozenset(one.buffer for one in bound) - {self._placeholder} - {one.buffer for one in writes}
        return Kernel(compiled, algorithm, tensors, dispatch, tuple(bound), reads, writes)

    def compile(self, plans: Iterable[Any], lease: Lease | None = None, until: float = math.inf) -> None:
        """Compile plans' kernels that the store lacks, if threads may. until: time from which no thread begins another."""
        if self.compilers == 1:
            return
        alike = {(one.kernel, one.subgroup_size, id(one.constants)): one
                 for plan in plans for one in plan.initialize + plan.execute}.values()
        missing = {key: one for one in alike if (key := _key(spirv.load(one.kernel), one)) not in self.store}
        begun, pool = [], ThreadPoolExecutor(self.compilers)
        try:
            for dispatch in missing.values() if len(missing) > 1 else ():
                size, tries = self._builder(spirv.load(dispatch.kernel), dispatch)
                try:
                    begun.append((dispatch, size, tries, pool.submit(*tries)))
                except RuntimeError as error:  # the system gives no thread: kernels are compiled when they are needed
                    expect_no_thread(error)
                    break
            for dispatch, size, tries, future in begun:
                if time.perf_counter() >= until:
                    pool.shutdown(wait=False, cancel_futures=True)
                if not future.cancelled():
                    self._pipeline(lease, spirv.load(dispatch.kernel), dispatch, (size, [*tries, future.result]))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _builder(self, compiled: CompiledKernel, dispatch: Dispatch) -> tuple[int, list[Callable[[], Any]]]:
        """Return the size of a dispatch's SPIR-V, and in a list a function for any thread that has kp compile it."""
        self._features.check(compiled, dispatch.subgroup_size, dispatch.constants.get("WORKGROUP", 1))
        code = compiled.specialize(dispatch.constants)
        return len(code), [lambda: system.keep(self._manager.algorithm(
            [self._placeholder._tensor] * len(compiled.interface.bindings), code, list(dispatch.groups), np.zeros(0, np.uint32),
            np.zeros(len(compiled.interface.push), np.uint32), subgroup_size=dispatch.subgroup_size))]

    def _pipeline(self, lease: Lease | None, compiled: CompiledKernel, dispatch: Dispatch,
                  begun: tuple[int, list[Callable[[], Any]]] | None = None) -> Any:
        """Return kp's algorithm for a dispatch, with the placeholder bound, from the store. begun: `_builder`'s, and a try."""
        taken = 0

        def make() -> Any:
            nonlocal taken
            begin, before = time.perf_counter(), system.heap_bytes()
            size, tries = begun or self._builder(compiled, dispatch)
            self.pipelines_made += 1
            with self.saying([dispatch.kernel]):
                pipeline = self.made(lambda: self.driver.make(f"compiling {dispatch.kernel}",
                                                              tries.pop() if tries[1:] else tries[0]), lease)
            taken = pipeline_bytes(before, system.heap_bytes(), size)
            if self.store.size + taken > self.store.limit:  # a submission has freed pipelines that were dropped earlier
                system.trim_heap()
            seconds = time.perf_counter() - begin
            _log.info("compiled %s in %.1f ms", dispatch.kernel, seconds * 1e3)
            self._pipeline_file.made(seconds, lambda: self.driver.call("reading pipelines", self._manager.pipeline_cache_data))
            return pipeline

        return self.store.get(_key(compiled, dispatch), make, lambda: taken, lease)


def _key(compiled: CompiledKernel, dispatch: Dispatch) -> Hashable:
    return "pipeline", compiled.spirv, compiled.values(dispatch.constants), dispatch.subgroup_size


_LONG_SECONDS = 2.0

# Bytes of the process that a pipeline takes for a byte of its SPIR-V; 4 to 139 were measured, in the mean up to 40
# (docs/notebook.md)
_LEAST_BYTES, _UNKNOWN_BYTES, _MOST_BYTES = 4, 64, 192


def pipeline_bytes(before: int | None, after: int | None, spirv: int) -> int:
    """Estimate the bytes of the process that a pipeline takes. before, after: those of the heap as it was made; None: unknown.
    spirv: its size.

    A third is added for gaps in the heap. The bounds cover other threads, and drivers that compile later or have another
    heap.
    """
    if before is None or after is None:
        return _UNKNOWN_BYTES * spirv
    return min(max((after - before) * 4 // 3, _LEAST_BYTES * spirv), _MOST_BYTES * spirv)


class OnceForEachGpu(Generic[T]):
    """Wraps a function of a Gpu and other arguments, whose results are kept as long as the Gpu."""

    def __init__(self, function: Callable[..., T]) -> None:
        self._function = function

    def __call__(self, gpu: Gpu, *arguments: Hashable) -> T:
        kept = gpu.once_cache.setdefault(self, {})
        if arguments not in kept:
            kept[arguments] = self._function(gpu, *arguments)
        result: T = kept[arguments]
        return result

    def cache_clear(self) -> None:
        for gpu in _open.values():
            gpu.once_cache.pop(self, None)


_open: dict[tuple[int, str, str], Gpu] = {}
_opening = system.Lock()


def open_device(info: DeviceInfo) -> Gpu:
    """Return the process's one Gpu for a device, so that buffers can pass between all users of the device."""
    obey_environment()
    with _opening:
        key = info.index, info.name, info.driver  # other facts may change, such as cores with the process's affinity
        found = _open.get(key)
        if found is None or found.driver.lost:
            made = Gpu(info)
            if _open.get(key) is found:  # else a signal's handler has opened it meanwhile
                _open[key] = made
        return _open[key]


_ROOT = logging.getLogger("vkdml")
_ROOT.addHandler(logging.NullHandler())

_STDERR = logging.StreamHandler()
_STDERR.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))

LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


def obey_environment() -> None:
    """Send messages of VKDML_LOG's level and above to stderr only. Raises InvalidArgumentError for an unknown level."""
    name = system.setting("Device", "VKDML_LOG", LEVELS)
    if name:
        _ROOT.setLevel(LEVELS[name])
        _ROOT.propagate = False
        _ROOT.addHandler(_STDERR)
