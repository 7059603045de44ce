"""Commands: work that is recorded once and executed any number of times, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import compress
from typing import Any

import numpy as np

from ..planning.dispatches import Dispatch
from ..planning.plan import Plan
from .vulkan import spirv, system
from .vulkan.gpu import Gpu, Kernel
from .vulkan.memory import Bound, DeviceMemory, overlap
from .vulkan.store import Lease
from .vulkan.submissions import NONE, Builder, Operation
from .weights import OWNED, Origin, Weights, is_current, origin_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _HostCall:
    """A function that each execution calls. It writes no buffer on the device."""

    writes = NONE
    work: Callable[[], None]


@dataclass(frozen=True)
class _Packing:
    """Dispatches that pack weights. sources: their inputs. is_fresh: whether an earlier step writes the inputs each time."""

    weights: Weights
    sources: Sequence[Bound]
    operations: Sequence[Operation]
    is_fresh: bool

    @property
    def writes(self) -> frozenset[Bound]:
        return frozenset(part for operation in self.operations for part in operation.writes)

    def origin(self) -> Origin | None:
        """Return the origin of the weights that packing would give now; None if it is unknown."""
        return None if self.is_fresh else origin_of(self.sources)


@dataclass
class Attempts:
    """Counts attempts that gave up. goes_on: whether to try again after one did. keep: called for each that gives up."""

    goes_on: bool = True
    timeouts: int = 0
    keep: Callable[[], None] = lambda: None

    @property
    def is_worthwhile(self) -> bool:
        """Whether to try again. An attempt that gives up has lost time waiting."""
        return self.goes_on or not self.timeouts

    def gave_up(self) -> None:
        self.timeouts += 1
        self.keep()
        _log.warning("workgroups gave up waiting: the fallback runs, %s",
                     "this time" if self.goes_on else "and from now on at once")


class _Attempt:
    """The execution of a plan that may give up. Its fallback does the same work, and is recorded when it is first needed.

    An attempt that gives up sets the first word of a buffer that the plan names. The buffer must be 0 before, and stays 0 if
    the attempt succeeds.
    """

    def __init__(self, gpu: Gpu, lease: Lease | None, plan: Plan, buffers: Mapping[str, Bound], attempts: Attempts) -> None:
        assert plan.timed_out
        self.flag, self.attempts = buffers[plan.timed_out].buffer, attempts
        self.tried = _recorded(gpu, lease, plan.execute, buffers)
        self.tried.readback(self.flag, 4)
        self.fallback = cache(partial(_recorded, gpu, lease, plan.fallback, buffers))
        self.writes = frozenset(buffers[name] for dispatch in plan.execute + plan.fallback for name in dispatch.writes)

    def clear(self) -> None:
        """Make the buffer 0."""
        self.flag.upload(np.zeros(self.flag.size_in_bytes // 4, np.uint32))

    def gave_up(self) -> bool:
        """Return whether it has given up, or another attempt with the same buffer has; count that."""
        gave_up = self.flag._mapped.data[:4] != bytes(4)
        if gave_up:
            self.attempts.gave_up()
        return gave_up

    def settle(self) -> None:
        """Run the fallback if it has given up."""
        if self.gave_up():
            self.clear()
            self.fallback().execute()


_Step = Operation | _HostCall | _Packing | _Attempt


def storage_buffers(plan: Plan) -> dict[str, int]:
    """Return how many buffers each kernel of a plan binds, by name. An optional tensor that is left out counts too."""
    names = {dispatch.kernel for dispatch in plan.initialize + plan.execute + plan.fallback}
    return {name: len(spirv.load(name).interface.bindings) for name in names}


class Commands:
    """A list of operations, each of which waits for those that it depends on. All go to the driver in one submission, unless
    `dispatch` starts another or `call` runs Python between two. If an attempt gives up, all run again with the fallbacks.

    merges: whether host and device may write different parts of a buffer; if not, an upload or a readback copies all of it.
    As outputs may then be inputs, an attempt ends its submission, and only its fallback runs again. The same holds for calls.
    lease: keeps the pipelines in the store. Callers record and execute within the `work` of the device's lock.
    """

    def __init__(self, gpu: Gpu, merges: bool = False, lease: Lease | None = None) -> None:
        self.gpu = gpu
        self._merges = merges
        self._is_repeatable = not merges  # whether all may run twice: no output is an input, and no call notices
        self.lease = lease
        self._steps: list[_Step] = []
        self._packings: list[_Packing] = []
        self._attempts: list[_Attempt] = []
        # Steps that change stamps, in recorded order: packings, initialized weights and (if it merges) uploads
        self._stamped: list[_Packing | Weights | Any] = []
        # Weights that an initializer must have packed before, each with the function that raises if none has
        self._needed: dict[Weights, Callable[[], None]] = {}
        self._checks: list[Callable[[], None]] = []
        self._built: dict[tuple[tuple[bool, ...], ...], Builder] = {}  # submissions, by their packings and attempts
        self._owned: dict[Weights, int] = {}  # weights of initializers recorded here, and the number of steps before each
        self._overwritten: set[Weights] | None = None  # weights whose buffer another step writes to; None: not computed yet

    def before_execute(self, check: Callable[[], None]) -> None:
        """Call `check` before the work of each execution. It raises to refuse the execution."""
        self._checks.append(check)

    def writes(self, bound: Bound) -> bool:
        """Return whether a dispatch recorded so far writes to a part of a buffer."""
        return any(overlap(part, bound) for step in self._dispatches for part in step.writes)

    @property
    def operations(self) -> list[Operation]:
        """The steps that are dispatches or copies."""
        return [step for step in self._steps if isinstance(step, Operation)]

    @property
    def _dispatches(self) -> list[_Step]:
        """The steps that are no copies."""
        return [step for step in self._steps if not isinstance(step, Operation) or step.copies is None]

    def _changes(self, steps: Iterable[_Step]) -> Iterator[Bound]:
        """Yield the parts that steps write. Uploads of writes that were already stamped on the host are left out."""
        for step in steps:
            copied = step.copies if isinstance(step, Operation) else None
            if not (self._merges and copied and not copied._is_exposed):
                yield from step.writes

    def upload(self, buffer: Any, size: int | None = None) -> None:
        """Record a copy to the device. size: bytes from the start of the buffer; None: all."""
        if buffer._has_other_memory:
            if self._merges and buffer._is_counted:
                computed = [part for step in self._dispatches for part in step.writes if part.buffer is buffer]
                if computed:
                    self.before_execute(lambda: buffer._expect_seen(computed))
                    self.call(buffer._merge)
                else:
                    self.before_execute(buffer._merge)
                self._stamped.append(buffer)
            self._add(Operation(lambda submission: submission.upload(buffer, size), writes=frozenset([buffer]), copies=buffer,
                                size=size))

    def readback(self, buffer: DeviceMemory, size: int | None = None) -> None:
        """Record a copy to the host. size: as for `upload`."""
        if buffer._has_other_memory:
            self._add(Operation(lambda submission: submission.readback(buffer, size), reads=frozenset([buffer]), copies=buffer,
                                size=size))

    def acquire(self, memory: frozenset[DeviceMemory]) -> None:
        """Record that shared memory is taken from another API, which may have written to it."""
        self._add(Operation(lambda submission: submission.acquire(memory), writes=frozenset(memory), is_dispatch=False))

    def release(self, memory: frozenset[DeviceMemory]) -> None:
        """Record that it is given back."""
        self._add(Operation(lambda submission: submission.release(memory), writes=frozenset(memory), is_dispatch=False))

    def dispatch(self, kernel: Kernel, push: Mapping[str, int], starts_submission: bool = False) -> None:
        """Record a dispatch. push: its push constants, by their names in the shader. starts_submission: begin a new one."""
        self._add(Operation(lambda submission: submission.dispatch(kernel, push), kernel.reads, kernel.writes,
                            starts_submission=starts_submission))

    def record(self, dispatches: Sequence[Dispatch], buffers: Mapping[str, Bound]) -> None:
        """Record a plan's dispatches. buffers: the buffers, by their names in the plan."""
        made: dict[Hashable, Kernel] = {}  # dispatches that differ in push constants only share one
        for dispatch in dispatches:
            key = (dispatch.kernel, dispatch.groups, dispatch.subgroup_size, id(dispatch.constants), *dispatch.buffers.items())
            if key not in made:
                made[key] = self.gpu.create_kernel(dispatch, buffers, lease=self.lease)
            self.dispatch(made[key], dispatch.push, dispatch.starts_submission)

    def execution(self, plan: Plan, buffers: Mapping[str, Bound], attempts: Attempts) -> None:
        """Record an execution of a plan with packed weights. buffers: of the tensors, by field, and of the plan, by name."""
        if plan.timed_out is None:
            self.record(plan.execute, buffers)
        else:
            self._attempts.append(_Attempt(self.gpu, self.lease, plan, buffers, attempts))
            self._add(self._attempts[-1])

    def call(self, work: Callable[[], None]) -> None:
        """Call `work` at this place of each execution, after the steps before it."""
        self._is_repeatable = False
        self._add(_HostCall(work))

    def pack(self, weights: Weights, sources: Sequence[Bound], dispatches: Sequence[Dispatch], buffers: Mapping[str, Bound]
             ) -> None:
        """Pack weights at each execution that finds them changed. sources: their inputs. The others are as of `record`."""
        operations = _recorded(self.gpu, self.lease, dispatches, buffers).operations
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

    def execute(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Run all steps and wait. meanwhile: called while the first submission runs; the steps begin with none of `call`'s.

        Raises the errors of checks and calls, and DriverError when the driver fails.
        """
        if not (self._checks or self._stamped or self._needed):  # all calls but those of DirectML's objects
            return self._run((), meanwhile)
        for check in self._checks:
            check()
        due, origins = self._due()
        for weights, refuse in self._needed.items():
            if not is_current(weights.origin, OWNED):
                refuse()
        try:
            self._run(due, meanwhile)
        except BaseException:  # the device may have done any part of it
            for weights in {*self._owned, *(packing.weights for packing in self._packings)}:
                weights.origin = None
            raise
        for weights, origin in origins.items():
            weights.origin = origin

    def _run(self, due: tuple[bool, ...], meanwhile: Callable[[], None] | None) -> None:
        """Run the submissions and calls. If an attempt gives up, run all again with fallbacks, unless calls have done so."""
        tried = self._tried()
        attempts = list(compress(self._attempts, tried))
        for attempt in attempts:
            if not attempt.flag._is_clear:
                attempt.clear()
        for attempt in attempts:
            attempt.flag._is_clear = False  # until all have succeeded
        runs = self._submissions(due, tried).runs
        if meanwhile is not None:
            runs = [partial(runs[0], meanwhile), *runs[1:]]
        for run in runs:
            run()
        late = [attempt for attempt in attempts if attempt.gave_up()] if attempts and self._is_repeatable else []
        for attempt in late:
            attempt.clear()
        for run in self._submissions(due, (False,) * len(tried)).runs if late else ():
            run()
        for attempt in attempts:
            attempt.flag._is_clear = True

    def _tried(self) -> tuple[bool, ...]:
        """Return which attempts are worthwhile."""
        return tuple([one.attempts.is_worthwhile for one in self._attempts]) if self._attempts else ()

    def prepare(self) -> None:
        """Build the submissions of the next execution now."""
        self._submissions(self._due()[0], self._tried())

    def _due(self) -> tuple[tuple[bool, ...], dict[Weights, Origin | None]]:
        """Return which packings are needed now, and the origins that their weights have afterwards.

        It stamps each upload in order, as a packing before it still reads the old contents of the device.
        """
        after: dict[Weights, tuple[Origin | None, int | None]] = {}
        due = []
        if self._overwritten is None:
            self._overwritten = {packing.weights for packing in self._packings if self._is_overwritten(packing.weights)}
        for step in self._stamped:
            if isinstance(step, Weights):
                after[step] = None if self.is_spoiled(step) else OWNED, step.stamp
            elif not isinstance(step, _Packing):
                step._mark_uploaded()
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

    def _submissions(self, due: tuple[bool, ...], tried: tuple[bool, ...]) -> Builder:
        """Return an execution's submissions and calls, kept or built now. due: its packings. tried: attempts that it makes."""
        if (due, tried) not in self._built:
            builder, packs, attempts = Builder(self.gpu, self._merges), iter(due), iter(tried)
            for step in self._steps:
                if isinstance(step, _HostCall):
                    builder.call(step.work)
                elif isinstance(step, Operation):
                    builder.add(step)
                elif isinstance(step, _Packing):
                    builder.add(*step.operations if next(packs) else ())
                elif next(attempts):
                    builder.add(*step.tried.operations)
                    if not self._is_repeatable:
                        builder.call(step.settle)
                else:
                    builder.add(*step.fallback().operations)
            builder.finish()
            self._built[due, tried] = builder
        return self._built[due, tried]

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of submissions and of dispatches of an execution that packs nothing, and in which no attempt gives up."""
        built = self._submissions((False,) * len(self._packings), self._tried())
        return built.submissions, built.dispatches


def _recorded(gpu: Gpu, lease: Lease | None, dispatches: Sequence[Dispatch], buffers: Mapping[str, Bound]) -> Commands:
    commands = Commands(gpu, lease=lease)
    commands.record(dispatches, buffers)
    return commands
