"""The machine: waves of any number of lanes that run a dispatch in some order, and reports of what they must not do."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tools.hostile import weak
from tools.hostile.arithmetic import Exact
from tools.hostile.lanes import Mask
from tools.hostile.memory import Memory
from tools.hostile.ordering import BUFFERS, WORKGROUP_SCOPE, Order, active
from tools.hostile.translating import Translation

FORWARD, BACKWARD, SHUFFLED = "forward", "backward", "shuffled"
ALL = 0  # workgroups in one wave
_GROUPS, _GROUP, _INVOCATION, _GLOBAL, _INDEX = 24, 26, 27, 28, 29  # builtins
_SLOWEST = 0.05  # of the speed of others
Reports = dict[tuple[str, str, str], str]  # what, the kernel and where in it: an example


@dataclass
class Behaviour:
    """How a device behaves, of what it may do.

    arithmetic: Exact or an Inexact. watches: whether races, and what is read unwritten, are looked for. weak: whether memory
    is that between workgroups that wait for each other. wave: lanes of one; ALL: one of all workgroups where they do not wait
    for each other. resident: workgroups at once; 0: all. order: of waves. spins: looks before giving up.
    """

    seed: int = 0
    arithmetic: Any = Exact
    watches: bool = False
    weak: bool = False
    wave: int = ALL
    resident: int = 0
    order: str = FORWARD
    spins: int = 20_000
    reports: Reports = field(default_factory=dict)


@dataclass
class Machine:
    """One dispatch. memories: by the module's variables. order: None where accesses are not watched."""

    kernel: str
    translation: Translation
    behaviour: Behaviour
    memories: Mapping[int, Memory]
    push: tuple[Any, ...]
    groups: tuple[int, int, int]
    size: int
    pattern: dict[str, Any]
    order: Order | None
    clock: weak.Clock | None = None

    def __post_init__(self) -> None:
        self.count = self.groups[0] * self.groups[1] * self.groups[2]
        self.random, self.noise = random.Random(self.behaviour.seed), np.random.default_rng(self.behaviour.seed)
        self.places = self.translation.places
        self.weak = [memory.weak for memory in self.memories.values() if memory.weak]

    def report(self, what: str, place: int, example: str = "") -> None:
        self.behaviour.reports.setdefault((what, self.kernel, self.places[place]), example)

    def run(self, wave: int) -> None:
        """wave: its lanes."""
        if wave == ALL:
            self._run_all()
        else:
            self._run_waves(wave)
        for memory in self.weak:
            memory.release()

    def _barrier(self, workgroups: Any, semantics: int) -> None:
        if self.order:
            self.order.barrier(np.asarray(workgroups), semantics)

    def _run_all(self) -> None:
        wave = Wave(self, np.arange(self.count), 0, self.size)
        for place, mask, scope, _, semantics in self.translation.start(wave) or ():
            self._check_scope(scope, place)
            arrived = np.full((self.count, self.size), True) if mask is None else mask.reshape(self.count, self.size)
            if (arrived.all(1) != arrived.any(1)).any():
                self.report("a barrier in divergent flow", place)
            self._barrier(np.flatnonzero(arrived.any(1)), semantics)

    def _check_scope(self, scope: int, place: int) -> None:
        if scope != WORKGROUP_SCOPE:
            self.report("a barrier of another scope than the workgroup", place)

    def _run_waves(self, lanes: int) -> None:
        waiting = list(range(self.count))
        if self.behaviour.order == BACKWARD:
            waiting.reverse()
        elif self.behaviour.order == SHUFFLED:
            self.random.shuffle(waiting)
        running: dict[int, list[Run]] = {}
        while waiting or running:
            while waiting and len(running) < (self.behaviour.resident or self.count):
                group = waiting.pop(0)
                running[group] = [Run(self, group, first, min(lanes, self.size - first))
                                  for first in range(0, self.size, lanes)]
            ready = [run for runs in running.values() for run in runs if run.is_ready]
            if ready:
                run = self._next(ready)
                for _ in range(self.random.choice((1, 1, 2, 5, 20))):
                    self._step()
                    if not run.step():
                        break
                if len(ready) > 1 and self.behaviour.order == FORWARD:  # others have their turn before it comes again
                    running[run.group] = running.pop(run.group)
                if run.is_ready:
                    continue
                if all(other.barrier for other in running[run.group] if not other.is_over):
                    self._pass(run.group, running[run.group])
            for group in [group for group, runs in running.items() if all(run.is_over for run in runs)]:
                del running[group]

    def _step(self) -> None:
        if self.clock:
            self.clock.now += 1
            for memory in self.weak:
                memory.step()

    def _next(self, ready: list[Run]) -> Run:
        if self.behaviour.order == SHUFFLED:
            return self.random.choices(ready, [run.speed for run in ready])[0]
        return ready[0 if self.behaviour.order == FORWARD else -1]

    def _pass(self, group: int, runs: list[Run]) -> None:
        """All waves of a workgroup that are not over wait at a barrier."""
        waiting = [run for run in runs if run.barrier]
        if not waiting:
            return
        place, _, scope, _, semantics = waiting[0].barrier
        self._check_scope(scope, place)
        if len(waiting) < len(runs) or any(run.barrier[0] != place or run.barrier[1] is not None for run in waiting):
            self.report("a barrier in divergent flow", place)
        self._barrier([group], semantics)
        for run in waiting:
            if self.clock:
                weak.fence(self.clock, self.weak, run.wave.invocations, semantics)
            run.barrier = None


class Wave:
    """`count` invocations from `first` on of each of the workgroups."""

    def __init__(self, machine: Machine, groups: np.ndarray, first: int, count: int) -> None:
        self.machine, self.report, self.memories, self.push = machine, machine.report, machine.memories, machine.push
        self.arithmetic, self.pattern, self.lanes = machine.behaviour.arithmetic, machine.pattern, len(groups) * count
        self.privates: dict[int, list[Any]] = {}
        self.workgroups = np.repeat(groups.astype(np.int64), count)
        local = np.tile(np.arange(first, first + count), len(groups))
        self.invocations = self.workgroups * machine.size + local
        x, y, _ = machine.groups
        zero, index = np.uint32(0), local.astype(np.uint32)
        group = tuple(self._of_group(part, count) for part in (groups % x, groups // x % y, groups // x // y))
        self.inputs = {_GROUPS: tuple(map(np.uint32, machine.groups)), _GROUP: group, _INVOCATION: (index, zero, zero),
                       _INDEX: index, _GLOBAL: (group[0] * np.uint32(machine.size) + index, group[1], group[2])}

    @staticmethod
    def _of_group(part: np.ndarray, count: int) -> Any:
        return np.uint32(part[0]) if len(part) == 1 else np.repeat(part.astype(np.uint32), count)

    def noise(self, lanes: int, dtype: Any) -> np.ndarray:
        return self.machine.noise.integers(0, np.iinfo(dtype).max, lanes, dtype, endpoint=True)

    def fence(self, mask: Mask, scope: int, semantics: int) -> None:
        invocations = self.invocations[active(mask, self.lanes)]
        if self.machine.order:
            self.machine.order.fence(invocations, scope, semantics)
        if self.machine.clock and scope != WORKGROUP_SCOPE and semantics & BUFFERS:
            weak.fence(self.machine.clock, self.machine.weak, invocations, semantics)


class Run:
    """A wave that runs. barrier: at which it waits; speed: how often it has its turn."""

    def __init__(self, machine: Machine, group: int, first: int, count: int) -> None:
        self.group, self.wave, self.barrier, self.is_over = group, Wave(machine, np.array([group]), first, count), None, False
        self.speed = _SLOWEST ** machine.random.random()
        self.events: Any = machine.translation.start(self.wave)
        if self.events is None:
            self.is_over = True

    barrier: Any

    @property
    def is_ready(self) -> bool:
        return not self.is_over and self.barrier is None

    def step(self) -> bool:
        """Run until the next place where others may have their turn. Returns whether it can go on."""
        try:
            self.barrier = next(self.events)
        except StopIteration:
            self.is_over = True
        return self.is_ready
