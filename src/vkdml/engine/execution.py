"""Executions: operators on one device that pass tensors to each other there. All faces that take arrays run them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import InvalidArgumentError
from ..operators.arguments import flat
from ..operators.checks import power_of_two
from ..operators.element_types import ITEMSIZES
from ..operators.plain_problem import PlainProblem
from ..operators.problem import Problem
from ..planning.options import Options
from .commands import Commands
from .compiled import Compiled, Share, choose_within
from .vulkan.driver import working
from .vulkan.gpu import Gpu
from .vulkan.memory import COPIED, DIRECT, OWN, SENT, SHARED, Bound, DeviceMemory, Kind, Range
from .vulkan.store import Lease
from .weights import Contents, PackState, Snapshot, Weights, digest, is_current

_LEAST_BYTES = 256
_MOST_DIRECT_BYTES = 2**16  # of an input that the host writes to the device's memory; larger ones are copied


class Kept:
    """An input that stays on the device, in a buffer of its own of `size` bytes, for all executions whose `ways` have this."""

    def __init__(self, size: int) -> None:
        self.size = size


# How an input gets to the device: through shared memory at each run, from the host at a run that does not find it there, or as
# this constant; otherwise, from the host at each run
Way = Literal["shared"] | Kept | np.ndarray

_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Identifies scratch memory: number n of those of this size and kind."""

    size: int
    kind: Kind
    number: int


class _Places(NamedTuple):
    """The places of all buffers of an execution.

    tensors: by name, for each turn. own: of each node's scratch buffers, which the next node may reuse, by their names in the
    plan. packing: of weights while they are packed, by node and field. kept: bytes of the buffers that the execution does not
    share, by name.
    """

    tensors: Sequence[Mapping[str, Place]]
    own: Sequence[Mapping[str, Place]]
    packing: Mapping[int, Mapping[str, Place]]
    kept: Mapping[str, int]


def places(sizes: Mapping[str, int], with_copies: Collection[str], largest: int, taken: Counter[tuple[int, Kind]],
           only_written: Collection[str] = (), shared: Collection[str] = ()) -> dict[str, Place]:
    """Find a place for each buffer, by name.

    sizes: in bytes. They are rounded up to powers of two, so that other T and B take the same places, but not beyond `largest`.
    with_copies: names of buffers that the host accesses. only_written: of those that it does not read. shared: of those that
    another API accesses. taken: how many places are taken, by size and kind; it is updated.
    """
    found = {}
    for name, size in sizes.items():
        size = max(size, min(power_of_two(max(size, _LEAST_BYTES)), largest))
        written: Kind = COPIED if name not in only_written else DIRECT if size <= _MOST_DIRECT_BYTES else SENT
        kind = SHARED if name in shared else written if name in with_copies else OWN
        taken[size, kind] += 1
        found[name] = Place(size, kind, taken[size, kind])
    return found


class Turn(NamedTuple):
    """A run's commands, and the buffers of the tensors that they access, by name. views: the last ones."""

    buffers: Mapping[str, DeviceMemory]
    commands: Commands
    views: dict[str, np.ndarray]

    def view(self, name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """View an input to write it, or an output of the last run."""
        found = self.views.get(name)
        if found is None or found.shape != shape or found.dtype != dtype:
            found = self.views[name] = np.ndarray(shape, dtype, self.buffers[name]._mapped)
        return found


class Node(NamedTuple):
    """An operator of an execution. names: the names of its tensors, by field. Tensors with the same name share a buffer."""

    problem: Problem | PlainProblem
    names: Mapping[str, str]


class Execution:
    """Nodes, in the order in which they run, compiled for a device.

    A name that is no node's output is an input. A node's weights are packed when they change, or at each run if a node computes
    one of them or `ways` names one. All executions on the device share pipelines, packed weights and buffers.

    share: decides which runs are checked. contents: the weights last seen; executions that differ in T and B only share it.
    ways: how inputs get to the device, by name, and which outputs are shared; other names are ignored. Where runs are checked,
    none may be shared. If all weights of a node are constants, runs leave them out.
    parts: names of inputs that are parts of another one's buffer: its name, and the first byte there, as `Range.offset`.
    turns: how many sets of buffers it has, so that the host can access one while a run uses another (`prepared`).

    inputs: the names that each run must pass as arrays. kept: those that it must pass with marks. weight_names: those of
    weights, unless all of a node's are constants; a run may leave them out if they have not changed. shared: those of shared
    inputs and outputs.
    """

    def __init__(self, gpu: Gpu, share: Share, nodes: Sequence[Node], outputs: Iterable[str], options: Options = Options(),
                 contents: Contents | None = None, ways: Mapping[str, Way] = {}, turns: int = 1,
                 parts: Mapping[str, tuple[str, int]] = {}) -> None:
        self.gpu, self._share, self._is_verified, self._count, self._parts = gpu, share, bool(share.share), turns, parts
        self._nodes = [(gpu.lock.work(Compiled, gpu, problem, options, self._is_verified), names) for problem, names in nodes]
        self._name = nodes[0].problem.operator  # for errors
        self._contents = contents or Contents()
        self._lease = Lease(gpu.store, self._let_go)
        computed = {names[field] for problem, names in nodes for field in problem.outputs if field in names}
        arrays = {name: way for name, way in ways.items() if isinstance(way, np.ndarray)}
        passed = computed | ways.keys() - arrays.keys() | parts.keys()
        weights = {index: {field: names[field] for field in compiled.weight_fields}
                   for index, (compiled, names) in enumerate(self._nodes)}
        self._given = {index: fields for index, fields in weights.items() if fields and passed.isdisjoint(fields.values())}
        self._needed = self._needed_bytes(nodes)
        self._sizes = self._buffer_sizes()
        self._passed = {index: names for index, names in self._given.items() if not arrays.keys() >= set(names.values())}
        self.weight_names = {name for names in self._passed.values() for name in names.values()}
        for index in self._given.keys() - self._passed:
            self._contents.look(index, self._given[index], arrays, self._memory_of)
        kept = {name: way for name, way in ways.items() if isinstance(way, Kept)}
        self.kept = kept.keys()
        self._sizes |= {name: way.size for name, way in kept.items()}
        self._stay: dict[str, tuple[Hashable, Callable[[], DeviceMemory]]] = {
            **{name: (("constant", digest({"": array})), partial(self._uploaded, name, array))
               for name, array in arrays.items() if name in self._sizes},
            **{name: (("kept", way), partial(DeviceMemory, gpu, way.size)) for name, way in kept.items()}}
        self.shared = {name for name, way in ways.items() if isinstance(way, str) and way == SHARED} & self._sizes.keys()
        self.inputs = sorted(self._sizes.keys() - computed - self._stay.keys() - self.shared)
        self._read = [name for name in outputs if name not in self.shared]  # the host reads them after each run
        self._on_host = self._sizes.keys() if self._is_verified else {*self.inputs, *self._read}
        checked = {names.get(problem.checked_input or "") for problem, names in nodes}
        self._only_written = set() if self._is_verified else set(self.inputs) - checked - set(self._read)
        self._let_go()

    def _let_go(self) -> None:
        """Forget the recorded commands and all that they use from the store."""
        self._places: _Places | None = None
        self._packed: dict[int, tuple[Hashable, Weights]] = {}  # the weights by node, with their keys in the store
        self._version: int | None = None  # the version of the contents that are packed
        self._turns: dict[bool, list[Turn]] = {}  # by is_checked

    def _needed_bytes(self, nodes: Sequence[Node]) -> dict[str, int]:
        """Return the bytes that the kernels read of each tensor, by name.

        Raises InvalidArgumentError if a node reads more bytes of a tensor than another node writes to it.
        """
        needed: dict[str, int] = {}
        written: dict[str, int] = {}
        for problem, names in nodes:
            for field, name in names.items():
                tensor, is_output = problem.tensor(field), field in problem.outputs
                element = problem.element if is_output else problem.input_element  # DirectML has no name for bfloat16
                size = tensor.size_of_elements * ITEMSIZES.get(tensor.data_type, element.itemsize)
                if is_output:
                    written[name] = size
                elif size > written.get(name, size):
                    raise InvalidArgumentError(problem.operator, field, f"{written[name]} bytes that an operator computes",
                                               f"{size} bytes, as this one reads them")
                else:
                    of, first = self._parts.get(name, (name, 0))
                    needed[of] = max(needed.get(of, 0), first + size)
        return needed

    def _memory_of(self, name: str, array: np.ndarray | None) -> np.ndarray:
        """Return an array as contiguous memory, with the gaps of its strides. Raises InvalidArgumentError if it has more bytes
        than the buffer, or fewer than the kernels read: they would read another call's data.
        """
        memory = np.empty(0, np.uint8) if array is None else array if array.flags.c_contiguous else flat(array)
        needed = self._needed.get(name, 0)
        if not needed <= memory.nbytes <= self._sizes.get(name, memory.nbytes):
            raise InvalidArgumentError(self._name, name, "no array" if array is None else f"{memory.nbytes} bytes",
                                       f"{needed} bytes, as the operators read them")
        return memory

    def _buffer_sizes(self) -> dict[str, int]:
        """Return the bytes of each tensor's buffer, by name. Weights have none: they need one only while they are packed."""
        sizes: dict[str, int] = {}
        for index, (compiled, names) in enumerate(self._nodes):
            for field, name in self._bound(index, names).items():
                of, first = self._parts.get(name, (name, 0))
                sizes[of] = max(sizes.get(of, 0), first + compiled.problem.tensor(field).size_in_bytes)
        return sizes

    def _bound(self, index: int, names: Mapping[str, str]) -> dict[str, str]:
        """Return the names of the tensors that a node reads and writes when it runs, by field: all but packed weights."""
        return {field: name for field, name in names.items() if field not in self._given.get(index, ())}

    @working
    def run(self, values: Mapping[str, np.ndarray], results: Mapping[str, tuple[Sequence[int], Any]],
            fill: Callable[[Mapping[str, DeviceMemory]], object] = bool, marks: Mapping[str, object] = {}
            ) -> dict[str, np.ndarray]:
        """Run the nodes on arrays. Return the outputs, by name.

        values: the inputs and weights, by name, contiguous or with the strides of their descriptors. If all weights of a node
        are left out, they have not changed. results: shapes and dtypes of the outputs to return. fill: called before the run
        with the device's memory by name, which it may keep; it writes the shared inputs, and `bool` none. marks: objects for
        the kept inputs: an array with the mark of the last one that was copied to the buffer is equal to it, and not copied.

        Raises InvalidArgumentError before any work for an input that is missing or too short, for sequence lengths above T, if
        the device has too little memory, and within another run of the same thread; DriverError when the driver fails;
        VerificationError if the run is checked and its results are wrong.
        """
        begin, made = time.perf_counter(), self.gpu.pipelines_made
        given = [self._memory_of(name, values.get(name)) for name in self.inputs]
        kept = {name: flat(self._memory_of(name, values.get(name))) for name in self.kept} if self.kept else {}  # faster
        turn = self.prepared(values, self._is_verified and self._share.has_next())[0]
        for name, memory in zip(self.inputs, given):
            turn.view(name, memory.shape, memory.dtype)[...] = memory
        for name, memory in kept.items():
            buffer = turn.buffers[name]
            if buffer._mark is not marks[name]:
                buffer._mark = None  # until it is there
                buffer.upload(memory)
                buffer._mark = marks[name]
        fill(turn.buffers)
        turn.commands.execute()
        if self.gpu.pipelines_made > made:
            self._tell(begin, made)
        return {name: turn.view(name, shape, dtype).copy() for name, (shape, dtype) in results.items()}

    @working
    def prepare(self, weights: Mapping[str, np.ndarray]) -> None:
        """Pack the weights, by name, and make all that a run needs. If that compiles anything, run once on zeros, as some
        drivers compile at the first dispatch.
        """
        begin, made = time.perf_counter(), self.gpu.pipelines_made
        turns = self.prepared(weights)
        for turn in turns:
            turn.commands.prepare()
        if self.gpu.pipelines_made > made:
            for name in self.inputs:
                turns[0].view(name, (self._sizes[name],), np.uint8)[:] = 0
            turns[0].commands.execute()
            self._tell(begin, made)

    def _tell(self, begin: float, made: int) -> None:
        """Log how long compiling took since the time `begin`, when there were `made` pipelines."""
        _log.info("%s: %.3f s in all for %d compiled kernels, with the first run", self._name, time.perf_counter() - begin,
                  self.gpu.pipelines_made - made)

    def prepared(self, values: Mapping[str, np.ndarray], is_checked: bool = False) -> list[Turn]:
        """Pack the weights in `values`. Return the turns, which may be executed until the lock's `work` ends.

        Raises InvalidArgumentError, before anything is made, if the device has too little memory.
        """
        if not self._turns:  # choosing may drop what this execution has in the store
            choose_within(self.gpu, [compiled for compiled, _ in self._nodes], lambda: self._bytes_of(self._placed()))
            placed = self._placed()
            self.gpu.memory.expect_room(self._name, self._bytes_of(placed))
            self._places = placed
            self.gpu.compile((made.plan for made, _ in self._nodes), self._lease)
        self.gpu.store.use(self._lease.keys)
        if not self.weight_names.isdisjoint(values):
            for index, names in self._passed.items():
                self._contents.look(index, names, values, self._memory_of)
        if is_checked not in self._turns or self._version != self._contents.version:
            for index in self._given:
                self._pack(index)
            self._version = self._contents.version
            if is_checked not in self._turns:
                self._turns[is_checked] = self._made_turns(is_checked)
        return self._turns[is_checked]

    def _placed(self) -> _Places:
        """Find a place for every buffer that the plans chosen so far need."""
        info, taken = self.gpu.info, Counter[tuple[int, Kind]]()
        # Drivers add bytes to a buffer, so a buffer cannot be as large as the largest allocation
        largest = min(info.max_storage_buffer_range, info.max_allocation // 2 or info.max_storage_buffer_range)
        sizes = {name: size for name, size in self._sizes.items() if name not in self._stay}
        tensors = [places(sizes, self._on_host, largest, taken, self._only_written, self.shared) for _ in range(self._count)]
        own, packing = [], {}
        kept = Counter({name: self.gpu.bytes_of(self._sizes[name], COPIED) for name in self._stay})
        for index, (compiled, _) in enumerate(self._nodes):
            packed, needed = compiled.plan.packed, compiled.temporary
            for name, size in compiled.read.items():
                kept[name] += self.gpu.bytes_of(size, COPIED) * self._count
            if index in self._given:
                kept.update(packed)
                fields = self._given[index]
                sizes = {field: compiled.problem.tensor(field).size_in_bytes for field in fields}
                packing[index] = places(sizes, fields, largest, Counter())
            else:
                needed |= packed
            own.append(places(needed, (), largest, taken.copy()))
        return _Places(tensors, own, packing, kept)

    def _bytes_of(self, placed: _Places) -> Counter[str]:
        """Return the bytes of device memory for all buffers, by name. Buffers at the same place count once."""
        sizes, seen = Counter(placed.kept), set[Place]()
        for name, place in chain.from_iterable(named.items() for named in (
                *placed.tensors, *placed.own, *placed.packing.values())):
            if place not in seen:
                sizes[name] += self.gpu.bytes_of(place.size, place.kind)
                seen.add(place)
        return sizes

    def _buffer(self, place: Place) -> DeviceMemory:
        """Return the buffer of a place, from the store."""
        return self.gpu.keep(("scratch", *place, self.gpu.host_memory),
                             lambda: DeviceMemory(self.gpu, place.size, place.kind),
                             self.gpu.bytes_of(place.size, place.kind), self._lease)

    def _pack(self, index: int) -> None:
        """Pack a node's weights, unless this or another execution has packed them."""
        assert self._places is not None
        compiled, snapshot = self._nodes[index][0], self._contents.snapshot(index)
        if index in self._packed:
            if is_current(self._packed[index][1].origin, snapshot.origin):
                return
            self.gpu.memory.expect_room(self._name, self._bytes_of(self._places))
            self._turns = {}  # they hold the old weights, which make room for the new ones
            key = self._packed.pop(index)[0]
            if all(other != key for other, _ in self._packed.values()):
                self._lease.keys.pop(key, None)
        key = ("packed weights", compiled.packing_key, snapshot.origin)
        buffers = self.gpu.keep(key, lambda: self._packed_now(index, snapshot), sum(compiled.plan.packed.values()), self._lease)
        checked = snapshot.arrays if compiled.is_verified else {}
        contents = {field: flat(array).view(np.uint8) for field, array in checked.items()}
        self._packed[index] = key, Weights(buffers, state=PackState(snapshot.origin, contents=contents))

    def _packed_now(self, index: int, snapshot: Snapshot) -> Mapping[str, DeviceMemory]:
        assert self._places is not None
        compiled = self._nodes[index][0]
        packed = {name: DeviceMemory(self.gpu, size, OWN) for name, size in compiled.plan.packed.items()}
        buffers = {field: self._buffer(place) for field, place in self._places.packing[index].items()}
        commands, arrays = Commands(self.gpu, lease=self._lease), snapshot.arrays
        for field, buffer in buffers.items():
            buffer._put(flat(arrays[field]))
            commands.upload(buffer, compiled.problem.tensor(field).size_in_bytes)
        compiled.record_packing(commands, buffers, Weights(packed))
        commands.execute()
        return packed

    def _uploaded(self, name: str, array: np.ndarray) -> DeviceMemory:
        buffer = DeviceMemory(self.gpu, self._sizes[name])
        buffer.upload(flat(array))
        return buffer

    def _made_turns(self, is_checked: bool) -> list[Turn]:
        """Record commands for each turn that upload the inputs, run all nodes and read back the outputs."""
        assert self._places is not None
        stay = {name: self.gpu.keep(key, make, self.gpu.bytes_of(self._sizes[name], COPIED), self._lease)
                for name, (key, make) in self._stay.items()}
        turns = []
        for tensors in self._places.tensors:
            buffers = {name: self._buffer(place) for name, place in tensors.items()} | stay
            turns.append(Turn(buffers, self._commands_of(is_checked, buffers), {}))
        return turns

    def _commands_of(self, is_checked: bool, memory: dict[str, DeviceMemory]) -> Commands:
        """Record the commands of one turn. memory: the buffers of all tensors, by name."""
        assert self._places is not None
        commands, shared = Commands(self.gpu, lease=self._lease), frozenset(memory[name] for name in self.shared)
        if shared:
            commands.acquire(shared)
        for name in self.inputs:
            commands.upload(memory[name], self._sizes[name])
        bound = memory | {name: Range(memory[of], first, self._sizes[of] - first) for name, (of, first) in self._parts.items()}
        for index, (compiled, names) in enumerate(self._nodes):
            own: dict[str, Bound] = {name: self._buffer(place) for name, place in self._places.own[index].items()}
            own |= self.gpu.made(partial(_buffers, self.gpu, compiled.read), self._lease)
            tensors = {field: bound[name] for field, name in self._bound(index, names).items()}
            weights = None
            if compiled.weight_fields:
                weights = self._packed[index][1] if index in self._packed else Weights(
                    {name: own[name] for name in compiled.plan.packed})
            compiled.record(commands, {**own, **tensors}, weights, is_checked)
        for name in self._read:
            commands.readback(memory[name], self._sizes[name])
        if shared:
            commands.release(shared)
        return commands


def _buffers(gpu: Gpu, sizes: Mapping[str, int]) -> dict[str, DeviceMemory]:
    return {name: DeviceMemory(gpu, size) for name, size in sizes.items()}
