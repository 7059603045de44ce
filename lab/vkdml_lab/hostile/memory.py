"""Simulates buffers and shared memory. Reports races, reads of unwritten words and accesses out of bounds; these read noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vkdml_lab.hostile.lanes import Array, Invocations, Mask
from vkdml_lab.hostile.ordering import Accesses, active
from vkdml_lab.hostile.weak import WeakMemory


class Buffer:
    """The words of a buffer, and for each half of a word whether it was ever written."""

    def __init__(self, words: np.ndarray) -> None:
        self.words, self.written = words, np.zeros(2 * len(words), bool)

    def put(self, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.words.view(np.uint8)[:raw.size] = raw
        self.written[:-(-raw.size // 4) * 2] = True  # the caller's data includes the padding of its last word


@dataclass
class Memory:
    """A buffer as a dispatch sees it, or a shared variable, for all workgroups.

    dtype: uint32 or uint16, the type of a unit (an element of this memory). units: of one workgroup's shared variable; 0 for a
    buffer. accesses: finds races; None: not looked for. is_flags: loads and stores count as relaxed atomics. may_store: the
    plan declares that the dispatch writes the buffer. weak: decides when others see a store; None: at once.
    """

    name: str
    buffer: Buffer
    dtype: Any = np.uint32
    units: int = 0
    accesses: Accesses | None = None
    is_flags: bool = False
    may_store: bool = True
    weak: WeakMemory | None = None

    def __post_init__(self) -> None:
        self.data = self.buffer.words.view(self.dtype)
        # `written` has an element for each half of a word; a view reads both at once
        self.written = self.buffer.written if self.dtype == np.uint16 else self.buffer.written.view(np.uint16)
        self.whole = True if self.dtype == np.uint16 else 0x0101
        self.limit = self.units or len(self.data)

    def _places(self, wave: Invocations, offset: Any, count: int, mask: Mask, place: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return each lane's first unit, clipped to the memory, and a mask of the lanes that were out of bounds, or None."""
        at = np.broadcast_to(np.asarray(offset, np.int64), (wave.lanes,))
        outside = at > self.limit - count
        if outside.any():
            if (outside if mask is None else outside & mask).any():
                most = int((at if mask is None else at[mask]).max()) + count - 1
                wave.report(f"out of bounds: {self.name}", place, f"unit {most} of {self.limit}")
            at = np.clip(at, 0, max(self.limit - count, 0))
        if self.units:
            at = at + wave.workgroups * self.units
        return at, outside if outside.any() else None

    def load(self, wave: Invocations, offset: Any, count: int, mask: Mask, place: int, looks_anew: bool) -> list[Any]:
        is_plain = not (self.accesses or self.weak or self.units)
        if is_plain and offset.__class__ is not Array and offset <= self.limit - count:
            return [self.data[int(offset) + n] for n in range(count)]
        at, outside = self._places(wave, offset, count, mask, place)
        if count > self.limit:
            return [wave.noise(self.dtype) for _ in range(count)]
        racing = self._watch(wave, at, count, mask, place) if self.accesses else None
        found = (self.weak.load(wave, at, count, mask, looks_anew) if self.weak
                 else [self.data[at + n] if n else self.data[at] for n in range(count)])
        bad = outside if racing is None else racing if outside is None else racing | outside
        if bad is not None:
            found = [np.where(bad, wave.noise(self.dtype), part) for part in found]
        return found

    def store(self, wave: Invocations, offset: Any, values: tuple[Any, ...], mask: Mask, place: int) -> None:
        count = len(values)
        at, outside = self._places(wave, offset, count, mask, place)
        if not self.may_store:
            wave.report(f"a store that the plan does not declare: {self.name}", place)
        if outside is not None:
            mask = ~outside if mask is None else mask & ~outside
            if not mask.any():
                return
        if self.accesses:
            self._watch(wave, at, count, mask, place, writes=True)
        if mask is not None:
            at = at[mask]
            values = tuple(value[mask] if value.__class__ is Array and value.ndim else value for value in values)
        if self.weak:
            self.weak.store(wave, at, values, mask)
            return
        for n, value in enumerate(values):
            self.data[at + n] = value
            self.written[at + n] = self.whole

    def atomic(self, wave: Invocations, name: str, offset: Any, value: Any, mask: Mask, place: int) -> Any:
        """Execute an atomic: load, store, and, or. Returns the values of a load only, as kernels ignore the others'."""
        at, _ = self._places(wave, offset, 1, mask, place)
        lanes = active(mask, wave.lanes)
        if self.accesses:
            self._watch(wave, at, 1, mask, place, name != "load", atomic=True)
        if self.weak:
            self.weak.before_atomic(wave, at[lanes], lanes, name != "load")
        if name == "load":
            return self.data[at]
        values = np.broadcast_to(value, (wave.lanes,))[lanes]
        self.written[at[lanes]] = self.whole
        if name == "store":
            self.data[at[lanes]] = values
        else:
            {"and": np.bitwise_and, "or": np.bitwise_or}[name].at(self.data, at[lanes], values)
        return None

    def _watch(self, wave: Invocations, at: np.ndarray, count: int, mask: Mask, place: int, writes: bool = False, atomic: bool = False
               ) -> np.ndarray | None:
        """Report races and reads of unwritten units. Returns a mask of the lanes whose loads then give noise, or None."""
        assert self.accesses
        lanes = active(mask, wave.lanes)
        units = at[lanes] if mask is not None else at
        if count > 1:
            units = (units[:, None] + np.arange(count)).ravel()
            lanes = np.repeat(lanes, count)
        bad = None
        if not writes:
            bad = self.written[units] != self.whole
            if bad.any():
                wave.report(f"unwritten: {self.name}", place, f"{int(bad.sum())} units")
        racing, other, what = self.accesses.conflicts(units, wave.invocations[lanes], place, writes, atomic or self.is_flags)
        if what:
            wave.report(f"race, {what}: {self.name}", place, after=other)
            bad = racing if bad is None else racing | bad
        if bad is None or not bad.any():
            return None
        found = np.zeros(wave.lanes, bool)
        found[lanes[bad]] = True
        return found
