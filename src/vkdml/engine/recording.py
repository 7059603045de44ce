"""A plan's dispatches -> commands, and what runs where a plan's attempt gives up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..planning.dispatches import Dispatch
from ..planning.plan import Plan
from .commands import Commands
from .vulkan import spirv
from .vulkan.buffers import Bound, Buffer
from .vulkan.gpu import Gpu, Kernel
from .vulkan.store import Lease

Record = Callable[[Commands], None]

_log = logging.getLogger(__name__)


def storage_buffers(plan: Plan) -> dict[str, int]:
    """How many each of its kernels binds, by name. A tensor that is left out takes one too."""
    names = {dispatch.kernel for dispatch in plan.initialize + plan.execute + plan.fallback}
    return {name: len(spirv.load(name).interface.bindings) for name in names}


def record_execution(gpu: Gpu, commands: Commands, plan: Plan, buffers: Mapping[str, Bound], attempts: Attempts) -> None:
    """Record an execution whose weights are packed. buffers: of the tensors, by field, and of the plan, by name. attempts: at
    the plan.
    """
    if plan.timed_out is None:
        record_dispatches(gpu, commands, plan.execute, buffers)
        return
    name, word = plan.timed_out
    writes = frozenset(buffers[name] for dispatch in plan.execute + plan.fallback for name in dispatch.writes)
    commands.call(Fallback(
        gpu, lambda commands: record_dispatches(gpu, commands, plan.execute, buffers), (buffers[name].buffer, word),
        lambda commands: record_dispatches(gpu, commands, plan.fallback, buffers), attempts, commands.lease).execute, writes)


def record_dispatches(gpu: Gpu, commands: Commands, dispatches: Sequence[Dispatch], buffers: Mapping[str, Bound]) -> None:
    made: dict[Hashable, Kernel] = {}  # one for all dispatches that differ in push constants only
    for dispatch in dispatches:
        key = (dispatch.kernel, dispatch.groups, id(dispatch.constants), *dispatch.buffers.items())
        if key not in made:
            made[key] = gpu.create_kernel(dispatch, buffers, lease=commands.lease)
        commands.dispatch(made[key], dispatch.push, dispatch.starts_submission)


@dataclass
class Attempts:
    """What came of those at one kind of work. timeouts: how many gave up. goes_on: whether it is tried again after that."""

    goes_on: bool = True
    timeouts: int = 0

    @property
    def is_worthwhile(self) -> bool:
        """Each that gives up has waited before."""
        return self.goes_on or not self.timeouts


class Fallback:
    """Runs an attempt, and the fallback where the attempt gave up, or is not worthwhile. Both do the same work.

    attempt, fallback: record their dispatches. The fallback is recorded, and its pipelines are made, when it is first needed.
    timed_out: the buffer and the index of the uint32 in it that an attempt sets when it gives up. The words from there to the
    buffer's end are where workgroups meet; they must be 0 when an attempt starts. An attempt that ends leaves them so.
    lease: of whoever keeps it.
    """

    def __init__(self, gpu: Gpu, attempt: Record, timed_out: tuple[Buffer, int], fallback: Record, attempts: Attempts,
                 lease: Lease | None = None) -> None:
        self._gpu, self._attempts, self._lease = gpu, attempts, lease
        self._buffer, self._word = timed_out
        self._attempt = Commands(gpu, lease=lease)
        attempt(self._attempt)
        self._attempt.readback(self._buffer)
        self._clear = Commands(gpu)
        self._clear.upload(self._buffer)
        self._record_fallback = fallback
        self._fallback: Commands | None = None
        self._is_clear = False

    def execute(self) -> None:
        if self._attempts.is_worthwhile:
            self._try()
        else:
            self._run_fallback()

    def _try(self) -> None:
        if not self._is_clear:
            self._clear_words()
        self._is_clear = False  # stays so if the driver fails
        self._attempt.execute()
        if self._buffer.host(np.uint32)[self._word]:
            self._attempts.timeouts += 1
            _log.warning("workgroups did not meet in time: the fallback runs, %s",
                         "this time" if self._attempts.goes_on else "and from now on at once")
            self._clear_words()  # at once, as other attempts may use the buffer too
            self._run_fallback()
        self._is_clear = True

    def _clear_words(self) -> None:
        self._buffer.host(np.uint32)[self._word:] = 0
        self._clear.execute()

    def _run_fallback(self) -> None:
        if self._fallback is None:
            self._fallback = Commands(self._gpu, lease=self._lease)
            self._record_fallback(self._fallback)
        self._fallback.execute()
