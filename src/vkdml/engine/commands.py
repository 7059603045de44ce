"""Commands: work that is recorded once and executed any number of times, in order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..planning.dispatches import Dispatch
from ..planning.plan import Plan
from .vulkan import spirv, system
from .vulkan.buffers import Bound, Buffer, overlap
from .vulkan.gpu import Gpu, Kernel, Submission
from .vulkan.store import Lease
from .weights import OWNED, Origin, Weights, is_current, origin_of

_NONE: frozenset[Any] = frozenset()


class _Operation(NamedTuple):
    """A dispatch or a copy. copies: the buffer of an upload or a readback. size: of the bytes that it copies; None: all."""

    record: Callable[[Submission], None]
    reads: frozenset[Buffer] = _NONE
    writes: frozenset[Bound] = _NONE
    copies: Buffer | None = None
    size: int | None = None
    starts_submission: bool = False


class _HostCall(NamedTuple):
    """A function that each execution calls. writes: parts of buffers that it changes."""

    work: Callable[[], None]
    writes: frozenset[Bound] = _NONE


@dataclass(frozen=True)
class _Packing:
    """Dispatches that pack weights. sources: their inputs. is_fresh: whether an earlier step writes the inputs each time."""

    weights: Weights
    sources: Sequence[Bound]
    operations: Sequence[_Operation]
    is_fresh: bool

    @property
    def writes(self) -> frozenset[Bound]:
        return frozenset(part for operation in self.operations for part in operation.writes)

    def origin(self) -> Origin | None:
        """Return the origin of the weights that packing would give now; None if it is unknown."""
        return None if self.is_fresh else origin_of(self.sources)


_Step = _Operation | _HostCall | _Packing


def storage_buffers(plan: Plan) -> dict[str, int]:
    """Return how many buffers each kernel of a plan binds, by name. An optional tensor that is left out counts too."""
    names = {dispatch.kernel for dispatch in plan.initialize + plan.execute + plan.fallback}
    return {name: len(spirv.load(name).interface.bindings) for name in names}


class Commands:
    """A list of operations, each of which waits for those that it depends on. All go to the driver in one submission, unless
    `dispatch` starts another or `call` runs Python between two.

    merges: whether host and device may write different parts of a buffer; if not, an upload or a readback copies all of it.
    lease: keeps the pipelines in the store.
    """

    def __init__(self, gpu: Gpu, merges: bool = False, lease: Lease | None = None) -> None:
        self.gpu = gpu
        self._merges = merges
        self.lease = lease
        self._steps: list[_Step] = []
        self._packings: list[_Packing] = []
        # Steps that change stamps, in recorded order: packings, initialized weights and (if it merges) uploads
        self._stamped: list[_Packing | Weights | Buffer] = []
        # Weights that an initializer must have packed before, each with the function that raises if none has
        self._needed: dict[Weights, Callable[[], None]] = {}
        self._checks: list[Callable[[], None]] = []
        self._built: dict[tuple[bool, ...], list[Callable[[], None]]] = {}  # submissions, by which packings they contain
        self._owned: dict[Weights, int] = {}  # weights of initializers recorded here, and the number of steps before each
        self._overwritten: set[Weights] | None = None  # weights whose buffer another step writes to; None: not computed yet

    def before_execute(self, check: Callable[[], None]) -> None:
        """Call `check` before the work of each execution. It raises to refuse the execution."""
        self._checks.append(check)

    def writes(self, bound: Bound) -> bool:
        """Return whether a dispatch recorded so far writes to a part of a buffer."""
        return any(overlap(part, bound) for step in self._dispatches for part in step.writes)

    @property
    def _dispatches(self) -> list[_Step]:
        """The steps that are no copies."""
        return [step for step in self._steps if not isinstance(step, _Operation) or step.copies is None]

    def _changes(self, steps: Iterable[_Step]) -> Iterator[Bound]:
        """Yield the parts that steps write. Uploads of writes that were already stamped on the host are left out."""
        for step in steps:
            copied = step.copies if isinstance(step, _Operation) else None
            if not (self._merges and copied and not copied._is_exposed):
                yield from step.writes

    def upload(self, buffer: Buffer, size: int | None = None) -> None:
        """Record a copy to the device. size: bytes from the start of the buffer; None: all."""
        if buffer._has_other_memory:
            if self._merges:
                computed = [part for step in self._dispatches for part in step.writes if part.buffer is buffer]
                if computed:
                    self.before_execute(lambda: buffer._expect_seen(computed))
                    self.call(buffer._merge)
                else:
                    self.before_execute(buffer._merge)
                self._stamped.append(buffer)
            self._add(_Operation(lambda submission: submission.upload(buffer, size), writes=frozenset([buffer]), copies=buffer,
                                 size=size))

    def readback(self, buffer: Buffer, size: int | None = None) -> None:
        """Record a copy to the host. size: as for `upload`."""
        if buffer._has_other_memory:
            self._add(_Operation(lambda submission: submission.readback(buffer, size), reads=frozenset([buffer]), copies=buffer,
                                 size=size))

    def dispatch(self, kernel: Kernel, push: Mapping[str, int], starts_submission: bool = False) -> None:
        """Record a dispatch. push: its push constants, by their names in the shader. starts_submission: begin a new one."""
        self._add(_Operation(lambda submission: submission.dispatch(kernel, push), kernel.reads, kernel.writes,
                             starts_submission=starts_submission))

    def record(self, dispatches: Sequence[Dispatch], buffers: Mapping[str, Bound]) -> None:
        """Record a plan's dispatches. buffers: the buffers, by their names in the plan."""
        made: dict[Hashable, Kernel] = {}  # dispatches that differ in push constants only share one
        for dispatch in dispatches:
            key = (dispatch.kernel, dispatch.groups, dispatch.subgroup_size, id(dispatch.constants), *dispatch.buffers.items())
            if key not in made:
                made[key] = self.gpu.create_kernel(dispatch, buffers, lease=self.lease)
            self.dispatch(made[key], dispatch.push, dispatch.starts_submission)

    def call(self, work: Callable[[], None], writes: frozenset[Bound] = _NONE) -> None:
        """Call `work` at this place of each execution, after the steps before it. writes: the parts that it changes."""
        self._add(_HostCall(work, writes))

    def pack(self, weights: Weights, sources: Sequence[Bound], record: Callable[[Commands], None]) -> None:
        """Pack weights at each execution that finds them changed. sources: their inputs. record: records the dispatches."""
        inner = Commands(self.gpu, lease=self.lease)
        record(inner)
        operations = [step for step in inner._steps if isinstance(step, _Operation)]
        written = set(self._changes(self._steps))
        is_fresh = any(overlap(part, source) for part in written for source in sources)
        self._packings.append(_Packing(weights, sources, operations, is_fresh))
        self._stamped.append(self._packings[-1])
        self._add(self._packings[-1])

    def own(self, weights: Weights) -> None:
        """Note that the dispatches recorded before are an initializer's and pack these weights."""
        self._owned[weights] = len(self._steps)
        self._stamped.append(weights)

    def need(self, weights: Weights, refuse: Callable[[], None]) -> None:
        """Call `refuse` at each execution that finds that no initializer has packed weights, or that they were overwritten."""
        self._needed[weights] = refuse

    @property
    def owned(self) -> Iterable[Weights]:
        """The weights that initializers recorded here pack."""
        return self._owned.keys()

    def is_spoiled(self, weights: Weights) -> bool:
        """Return whether a step recorded after these weights' initializer writes to the caller's buffer that holds them. Stamps
        report uploads instead.
        """
        since = self._changes(self._steps[self._owned.get(weights, 0):])
        return weights.within is not None and any(overlap(part, weights.within) for part in since)

    def _add(self, step: _Step) -> None:
        system.check()
        self._steps.append(step)
        self._built.clear()
        self._overwritten = None

    def execute(self) -> None:
        """Run all steps and wait. Raises the errors of checks and calls, and DriverError when the driver fails."""
        with self.gpu.lock:
            for check in self._checks:
                check()
            due, origins = self._due() if self._stamped else ((), {})
            for weights, refuse in self._needed.items():
                if not is_current(weights.origin, OWNED):
                    refuse()
            try:
                for run in self._built.get(due) or self._runs(due):
                    run()
            except BaseException:  # the device may have done any part of it
                for weights in {*self._owned, *(packing.weights for packing in self._packings)}:
                    weights.origin = None
                raise
            for weights, origin in origins.items():
                weights.origin = origin

    def prepare(self) -> None:
        """Build the submissions of the next execution now."""
        with self.gpu.lock:
            self._runs(self._due()[0])

    def _due(self) -> tuple[tuple[bool, ...], dict[Weights, Origin | None]]:
        """Return which packings are needed now, and the origins that their weights have afterwards.

        It stamps each upload in order, as a packing before it still reads the old contents of the device.
        """
        after: dict[Weights, tuple[Origin | None, int | None]] = {}
        due = []
        if self._overwritten is None:
            self._overwritten = {packing.weights for packing in self._packings if self._is_overwritten(packing.weights)}
        for step in self._stamped:
            if isinstance(step, Buffer):
                step._mark_uploaded()
            elif isinstance(step, Weights):
                after[step] = None if self.is_spoiled(step) else OWNED, step.stamp
            else:
                weights = step.weights
                wanted = None if weights in self._overwritten else step.origin()
                found = weights.since(*after[weights]) if weights in after else weights.origin
                due.append(not is_current(found, wanted))
                if due[-1]:
                    after[weights] = wanted, weights.stamp
        return tuple(due), {weights: weights.since(*then) for weights, then in after.items()}

    def _is_overwritten(self, weights: Weights) -> bool:
        """Return whether another step recorded here writes to the caller's buffer that holds these weights."""
        others = [step for step in self._steps if not (isinstance(step, _Packing) and step.weights == weights)]
        return weights.within is not None and any(overlap(part, weights.within) for part in self._changes(others))

    def _runs(self, due: tuple[bool, ...]) -> list[Callable[[], None]]:
        """Return an execution's submissions and calls, in order. due: which packings it contains."""
        if due not in self._built:
            builder = _Builder(self.gpu, self._merges)
            packs = iter(due)
            for step in self._steps:
                if isinstance(step, _HostCall):
                    builder.call(step.work)
                elif isinstance(step, _Operation):
                    builder.add(step)
                elif next(packs):
                    for operation in step.operations:
                        builder.add(operation)
            self._built[due] = builder.finish()
        return self._built[due]

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of submissions (with calls) and of dispatches of an execution that packs nothing."""
        dispatches = sum(isinstance(step, _Operation) and step.copies is None for step in self._steps)
        return len(self._runs((False,) * len(self._packings))), dispatches


class _Builder:
    """Makes submissions of operations, with barriers where an operation depends on one before it."""

    def __init__(self, gpu: Gpu, merges: bool) -> None:
        self._gpu = gpu
        self._merges = merges
        self._runs: list[Callable[[], None]] = []
        self._start()

    def _start(self) -> None:
        self._submission: Submission | None = None
        self._written: set[Buffer] = set()  # buffers that operations or uploads wrote since the last barrier
        self._copied: set[Buffer] = set()   # buffers uploaded or read back
        self._copies: list[tuple[Buffer, int | None]] = []
        self._read: set[Buffer] = set()     # buffers that dispatches read
        self._uploaded: set[Buffer] = set()
        self._seen: set[Bound] = set()      # parts that dispatches wrote before a copy of the buffer
        self._unread: set[Bound] = set()    # parts that dispatches wrote since the buffer was last copied

    def call(self, work: Callable[[], None]) -> None:
        self.finish()
        self._runs.append(work)

    def add(self, operation: _Operation) -> None:
        changes = {part.buffer for part in operation.writes}
        # Buffers that need a barrier first. kp orders an upload before a dispatch, and a dispatch before a readback
        needed = changes & (self._written | self._read)
        if operation.copies is None:
            needed |= operation.reads & self._written | changes & self._copied
        if operation.starts_submission or operation.copies in self._copied:
            self.finish()
        if self._submission is None:
            self._submission = self._gpu.create_submission()
        elif needed:
            self._submission.barrier(sorted(needed, key=lambda buffer: buffer._serial))
            self._written -= needed
            self._read -= needed
        operation.record(self._submission)
        if operation.copies is None:
            self._written |= changes
            self._read |= operation.reads
            self._unread |= operation.writes
        else:
            self._copied.add(operation.copies)
            self._copies.append((operation.copies, operation.size))
            self._uploaded |= changes
            seen = {part for part in self._unread if part.buffer is operation.copies}
            self._seen |= seen
            self._unread -= seen

    def finish(self) -> list[Callable[[], None]]:
        """End the current submission. Return all submissions and calls so far."""
        if self._submission is not None:
            submission, seen, unread = self._submission, self._seen, self._unread
            in_place = self._gpu.host_memory
            read_in_place = {part.buffer for part in seen | unread if part.buffer.has_copy} if in_place else set()
            if read_in_place:
                submission.show(sorted(read_in_place, key=lambda buffer: buffer._serial))
            copied, copies = self._copied, self._copies
            late = [part for part in unread if part.buffer in copied]
            read_back = copied - self._uploaded if self._merges else set()

            def run() -> None:
                for part in seen:  # first, as a submission that fails may have changed them
                    part._mark_computed()
                unsent = [(buffer, buffer._unsent()) for buffer in read_back] if read_back else []
                for part in unread:
                    part._mark_computed()
                submission.run()
                for buffer, size in copies:
                    buffer._mark_copied(size)
                for buffer, arrays in unsent:
                    buffer._put_back(arrays)
                for part in late:
                    part._mark_computed()

            self._runs.append(run)
        self._start()
        return self._runs
