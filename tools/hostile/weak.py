"""Weak memory: stores that others see late and in any order, loads that find what was there before until one acquires.

One of the machines that Vulkan's memory model allows, with a store buffer for each invocation before one memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tools.hostile.lanes import Mask
from tools.hostile.ordering import ACQUIRES, BUFFERS, RELEASES, active

if TYPE_CHECKING:
    from tools.hostile.machine import Wave


class Clock:
    """The time of a dispatch, and since when each of its invocations has acquired what others released."""

    def __init__(self, invocations: int, seed: int) -> None:
        self.now, self.acquired, self.random = 1, np.zeros(invocations, np.int64), np.random.default_rng(seed)


class WeakMemory:
    """delayed: the share of stores that do not arrive in a step; stale: the share of loads that find an older value."""

    def __init__(self, data: np.ndarray, clock: Clock, delayed: float = 0.9, stale: float = 0.3) -> None:
        self.data, self.clock, self.delayed, self.stale = data, clock, delayed, stale
        count, self.units = len(clock.acquired), len(data)
        self.before, self.changed = data.copy(), np.zeros(self.units, np.int64)  # the last value but one; its end
        self.seen = np.zeros((count, self.units), np.int64)    # since when each invocation has known the last one
        self.waits = np.zeros((count, self.units), bool)       # stores that have not arrived, and what they store
        self.stored = np.zeros((count, self.units), np.uint32)
        self.queue = np.zeros(0, np.int64)                     # their places in these
        self.kept = np.zeros((count, self.units), np.uint32)   # what a load found that may stand for the next ones
        self.kept_at = np.full((count, self.units), -1)

    def step(self) -> None:
        """Some stores arrive."""
        if len(self.queue):
            self._arrive(self.clock.random.random(len(self.queue)) > self.delayed)

    def _arrive(self, which: np.ndarray) -> None:
        places, self.queue = self.queue[which], self.queue[~which]
        invocations, at = np.divmod(places, self.units)
        self.seen[invocations, at] = self.clock.now
        self._change(at)
        self.data[at] = self.stored[invocations, at]
        self.waits[invocations, at] = False

    def _change(self, at: np.ndarray) -> None:
        self.before[at], self.changed[at] = self.data[at], self.clock.now

    def load(self, wave: Wave, at: np.ndarray, count: int, mask: Mask, looks_anew: bool) -> list[np.ndarray]:
        """What lanes of the mask find; others have anything."""
        lanes = active(mask, wave.lanes)
        invocations, acquired = wave.invocations[lanes], self.clock.acquired[wave.invocations[lanes]]
        found = []
        for n in range(count):
            here = at[lanes] + n
            value, since = self.data[here], np.maximum(acquired, self.seen[invocations, here])
            is_stale = (self.changed[here] > since) & (self.clock.random.random(len(here)) < self.stale)
            value = np.where(is_stale, self.before[here], value)
            self.seen[invocations, here] = np.where(is_stale, self.seen[invocations, here], self.clock.now)
            value = np.where(self.waits[invocations, here], self.stored[invocations, here], value)
            if not looks_anew:
                is_kept = self.kept_at[invocations, here] >= acquired
                value = np.where(is_kept, self.kept[invocations, here], value)
                self.kept[invocations, here] = value
                self.kept_at[invocations, here] = np.where(is_kept, self.kept_at[invocations, here], self.clock.now)
            all_lanes = np.zeros(wave.lanes, np.uint32)
            all_lanes[lanes] = value
            found.append(all_lanes)
        return found

    def store(self, wave: Wave, at: np.ndarray, values: tuple[Any, ...], mask: Mask) -> None:
        invocations = wave.invocations[active(mask, wave.lanes)]
        for n, value in enumerate(values):
            places = invocations * self.units + at + n
            self._arrive(np.isin(self.queue, places))  # an invocation's stores to one place stay in order
            self.stored[invocations, at + n] = value
            self.waits[invocations, at + n] = True
            self.kept_at[invocations, at + n] = -1
            self.queue = np.concatenate([self.queue, places])

    def before_atomic(self, wave: Wave, at: np.ndarray, lanes: np.ndarray, writes: bool) -> None:
        """Atomics work on the memory itself, behind their own invocation's stores to the same place."""
        self._arrive(np.isin(self.queue, wave.invocations[lanes] * self.units + at))
        if writes:
            self._change(at)

    def release(self, invocations: np.ndarray | None = None) -> None:
        """All stores of these invocations, or of all, arrive."""
        self._arrive(np.full(len(self.queue), True) if invocations is None else np.isin(self.queue // self.units, invocations))


def fence(clock: Clock, memories: list[WeakMemory], invocations: np.ndarray, semantics: int) -> None:
    if not semantics & BUFFERS:
        return
    if semantics & RELEASES:
        for memory in memories:
            memory.release(invocations)
    if semantics & ACQUIRES:
        clock.acquired[invocations] = clock.now
