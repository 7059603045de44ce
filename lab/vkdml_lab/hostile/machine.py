"""Runs a dispatch in waves (subgroups) of any number of lanes, in random order, and reports kernels' faults, such as races."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkdml_lab.hostile.arithmetic import Arithmetic
from vkdml_lab.hostile.memory import Memory
from vkdml_lab.hostile.ordering import WORKGROUP_SCOPE, Order, active
from vkdml_lab.hostile.translating import Translation
from vkdml_lab.hostile.weak import Clock

ALL = 0  # wave size: one wave runs all lanes of all workgroups
_GROUPS, _GROUP, _INVOCATION, _GLOBAL, _INDEX = 24, 26, 27, 28, 29  # numbers of SPIR-V's builtins
_SLOWEST = 0.05  # the least speed of a wave; the most is 1


@dataclass
class Behaviour:
    """How a device behaves, out of all that Vulkan allows.

    watches: look for data races and reads of unwritten memory. weak: stores reach other invocations late and in any order.
    wave: lanes of a subgroup; 0: one for all. resident: workgroups that run at once; 0: all. spins: polls before a wait gives
    up. reports: an example of each fault, by its kind, kernel and place in the code.
    """

    seed: int = 0
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    watches: bool = False
    weak: bool = False
    wave: int = ALL
    resident: int = 0
    spins: int = 20_000
    reports: dict[tuple[str, str, str], str] = field(default_factory=dict)


@dataclass
class Machine:
    """Runs one dispatch. memories: by id of variable. push: push constants. size: of a workgroup. pattern: the first contents
    of private memory, by kind of scalar. order: finds races; None: do not look. clock: of weak memory (weak.py), or None.
    """

    kernel: str
    translation: Translation
    behaviour: Behaviour
    memories: Mapping[int, Memory]
    push: tuple[Any, ...]
    groups: tuple[int, int, int]
    size: int
    pattern: dict[str, Any]
    order: Order | None
    clock: Clock | None

    def __post_init__(self) -> None:
        self.count, self.places = int(np.prod(self.groups)), self.translation.places
        self.random, self.noise = random.Random(self.behaviour.seed), np.random.default_rng(self.behaviour.seed)

    def report(self, what: str, place: int, example: str = "", after: int | None = None) -> None:
        where = self.places[place] + ("" if after is None else f" after {self.places[after]}")
        self.behaviour.reports.setdefault((what, self.kernel, where), example)

    def run(self, lanes: int) -> None:
        """Run all workgroups in waves of this many lanes; 0: one wave has all lanes of all workgroups."""
        groups = np.array(self.random.sample(range(self.count), self.count))
        waiting = [np.arange(self.count)] if lanes == ALL else np.split(groups, self.count)
        running: list[list[Wave]] = []  # the waves that share barriers: one workgroup's, or all
        while waiting or running:
            while waiting and len(running) < (self.behaviour.resident or self.count):
                together = waiting.pop()
                running.append([Wave(self, together, first, min(lanes or self.size, self.size - first))
                                for first in range(0, self.size, lanes or self.size)])
            ready = [(waves, wave) for waves in running for wave in waves if wave.is_ready]
            waves, wave = self.random.choices(ready, [wave.speed for _, wave in ready])[0]
            for _ in range(self.random.choice((1, 1, 2, 5, 20))):
                if self.clock:
                    self.clock.step()
                wave.step()
                if not wave.is_ready:
                    break
            if not any(wave.is_ready for wave in waves):
                self._pass([wave for wave in waves if wave.barrier])
            if all(wave.is_over for wave in waves):
                running.remove(waves)
        if self.clock:
            self.clock.release()

    def _pass(self, waves: list[Wave]) -> None:
        """Let waves pass the barrier at which all of them wait. Reports it if some invocations have not reached it."""
        arrived = np.zeros((self.count, self.size), bool)
        for wave in waves:
            place, mask, scope, _, semantics = wave.barrier
            arrived.reshape(-1)[wave.invocations[active(mask, wave.lanes)]] = True
            if place != waves[0].barrier[0] or scope != WORKGROUP_SCOPE:
                self.report("a barrier where others wait at another, or of another scope", place)
        if (arrived.any(1) != arrived.all(1)).any():
            self.report("a barrier in divergent flow", place)
        for wave in waves:
            if self.clock:
                self.clock.fence(wave.invocations, semantics)
            wave.barrier = None
        if self.order and waves:
            self.order.barrier(np.flatnonzero(arrived.any(1)), semantics)


class Wave:
    """A wave (subgroup): `count` invocations, from number `first` on, of each of the workgroups `groups`. barrier: where it
    waits, or None. speed: how often it runs, in proportion to the other waves.
    """

    def __init__(self, machine: Machine, groups: np.ndarray, first: int, count: int) -> None:
        self.machine, self.report, self.memories, self.push = machine, machine.report, machine.memories, machine.push
        self.arithmetic, self.pattern, self.lanes = machine.behaviour.arithmetic, machine.pattern, len(groups) * count
        self.privates: dict[int, list[Any]] = {}
        self.workgroups = np.repeat(groups.astype(np.int64), count)
        local = np.tile(np.arange(first, first + count), len(groups))
        self.invocations = self.workgroups * machine.size + local
        (x, y, _), zero, index = machine.groups, np.uint32(0), local.astype(np.uint32)
        group = tuple(np.uint32(part[0]) if len(groups) == 1 else np.repeat(part.astype(np.uint32), count)
                      for part in (groups % x, groups // x % y, groups // x // y))
        self.inputs = {_GROUPS: tuple(map(np.uint32, machine.groups)), _GROUP: group, _INVOCATION: (index, zero, zero),
                       _INDEX: index, _GLOBAL: (group[0] * np.uint32(machine.size) + index, group[1], group[2])}
        self.barrier: Any = None
        self.is_over, self.speed = False, _SLOWEST ** machine.random.random()
        self._running = machine.translation.start(self)

    @property
    def is_ready(self) -> bool:
        return not self.is_over and self.barrier is None

    def step(self) -> None:
        """Run this wave until the next point at which another wave may run."""
        try:
            self.barrier = next(self._running)
        except StopIteration:
            self.is_over = True

    def noise(self, dtype: Any) -> np.ndarray:
        return self.machine.noise.integers(0, np.iinfo(dtype).max, self.lanes, dtype, endpoint=True)
