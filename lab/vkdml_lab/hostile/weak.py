"""Simulates weak memory: stores reach other invocations late and in any order, and loads may find old values until their
invocation acquires. Vulkan allows this: each invocation has a store buffer in front of a common memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkdml_lab.hostile.lanes import Invocations, Mask
from vkdml_lab.hostile.ordering import ACQUIRES, BUFFERS, RELEASES, active

_DELAYED, _STALE = 0.9, 0.3  # probability that a store does not arrive in a step, and that a load finds the older value


class Clock:
    """The time of a dispatch, and when each of its invocations last acquired other invocations' stores."""

    def __init__(self, invocations: int, seed: int) -> None:
        self.now, self.acquired, self.random = 1, np.zeros(invocations, np.int64), np.random.default_rng(seed)
        self.memories: list[WeakMemory] = []

    def step(self) -> None:
        self.now += 1
        for memory in self.memories:
            if len(memory.queue):
                memory.arrive(self.random.random(len(memory.queue)) > _DELAYED)

    def fence(self, invocations: np.ndarray, semantics: int) -> None:
        if semantics & BUFFERS and semantics & RELEASES:
            self.release(invocations)
        if semantics & BUFFERS and semantics & ACQUIRES:
            self.acquired[invocations] = self.now

    def release(self, invocations: np.ndarray | None = None) -> None:
        """Let the pending stores of these invocations arrive in memory; None: of all invocations."""
        for memory in self.memories:
            owners = memory.queue // memory.units
            memory.arrive(owners >= 0 if invocations is None else np.isin(owners, invocations))


class WeakMemory:
    """The words of a buffer. before, changed: each word's previous value, and the time when it changed. For each invocation and
    word: seen (when it last saw the present value), stored (its pending store), kept (a loaded value that it may use again).
    """

    def __init__(self, data: np.ndarray, clock: Clock) -> None:
        self.data, self.clock, self.units = data, clock, len(data)
        clock.memories.append(self)
        self.before, self.changed = data.copy(), np.zeros(self.units, np.int64)
        of_each = len(clock.acquired), self.units
        self.seen, self.kept_at = np.zeros(of_each, np.int64), np.full(of_each, -1)
        self.stored, self.kept = np.zeros(of_each, np.uint32), np.zeros(of_each, np.uint32)
        self.is_stored = np.zeros(of_each, bool)
        self.queue = np.zeros(0, np.int64)  # indices into `stored` of the pending stores

    def arrive(self, which: np.ndarray) -> None:
        (invocations, at), self.queue = np.divmod(self.queue[which], self.units), self.queue[~which]
        self.seen[invocations, at] = self.clock.now
        self._change(at)
        self.data[at] = self.stored[invocations, at]
        self.is_stored[invocations, at] = False

    def _change(self, at: np.ndarray) -> None:
        self.before[at], self.changed[at] = self.data[at], self.clock.now

    def load(self, wave: Invocations, at: np.ndarray, count: int, mask: Mask, looks_anew: bool) -> list[np.ndarray]:
        """Return, as `count` arrays, the words from `at` on in each lane; 0 outside the mask. looks_anew: use no kept value."""
        lanes = active(mask, wave.lanes)
        found = [np.zeros(wave.lanes, np.uint32) for _ in range(count)]
        for n in range(count):
            here = wave.invocations[lanes], at[lanes] + n
            since = np.maximum(self.clock.acquired[here[0]], self.seen[here])
            is_stale = (self.changed[here[1]] > since) & (self.clock.random.random(len(lanes)) < _STALE)
            value = np.where(is_stale, self.before[here[1]], self.data[here[1]])
            self.seen[here] = np.where(is_stale, self.seen[here], self.clock.now)
            value = np.where(self.is_stored[here], self.stored[here], value)
            if not looks_anew:
                is_kept = self.kept_at[here] >= self.clock.acquired[here[0]]
                value = np.where(is_kept, self.kept[here], value)
                self.kept[here], self.kept_at[here] = value, np.where(is_kept, self.kept_at[here], self.clock.now)
            found[n][lanes] = value
        return found

    def store(self, wave: Invocations, at: np.ndarray, values: tuple[Any, ...], mask: Mask) -> None:
        invocations = wave.invocations[active(mask, wave.lanes)]
        for n, value in enumerate(values):
            here, places = (invocations, at + n), invocations * self.units + at + n
            self.arrive(np.isin(self.queue, places))  # so that one invocation's stores to a word stay in order
            self.stored[here], self.is_stored[here], self.kept_at[here] = value, True, -1
            self.queue = np.concatenate([self.queue, places])

    def before_atomic(self, wave: Invocations, at: np.ndarray, lanes: np.ndarray, writes: bool) -> None:
        """Let the lanes' pending stores to words `at` arrive before an atomic. writes: the atomic changes the words."""
        self.arrive(np.isin(self.queue, wave.invocations[lanes] * self.units + at))
        if writes:
            self._change(at)
