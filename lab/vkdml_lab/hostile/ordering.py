"""Finds data races in a dispatch by Vulkan's memory model: pairs of accesses of which neither happens before the other.

An invocation has a vector clock for each storage class: the last epoch of every invocation that happened before. Each barrier
begins a new epoch. Only barriers order invocations, and only those of one workgroup.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkdml_lab.hostile.lanes import Mask

SHARED, BUFFERS = 0x100, 0x40  # SPIR-V's memory semantics of the storage classes
ACQUIRES, RELEASES = 0xA, 0xC
WORKGROUP_SCOPE = 2


class Order:
    """The vector clocks of all invocations of a dispatch. Each clock has entries only for the invocation's own workgroup."""

    def __init__(self, workgroups: int, size: int) -> None:
        self.size = size
        self.epoch = np.ones(workgroups * size, np.int32)
        self.clocks = {kind: np.zeros((workgroups * size, size), np.int32) for kind in (SHARED, BUFFERS)}

    def is_before(self, kind: int, then: np.ndarray, epoch: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Return which accesses by invocations `then`, in these epochs, happen before accesses by invocations `now`."""
        seen = (self.clocks[kind][now, then % self.size] >= epoch) & (then // self.size == now // self.size)
        return seen | (then == now)

    def barrier(self, workgroups: np.ndarray, semantics: int) -> None:
        """Record that all invocations of these workgroups pass a barrier. semantics: SPIR-V's, with storage classes."""
        invocations = (workgroups[:, None] * self.size + np.arange(self.size)).ravel()
        shape = len(workgroups), self.size, -1
        for kind, clock in self.clocks.items():
            if semantics & kind:
                clock[invocations, invocations % self.size] = self.epoch[invocations]
                most = clock[invocations].reshape(shape).max(1, keepdims=True)
                clock[invocations] = np.repeat(most, self.size, 1).reshape(len(invocations), -1)
        self.epoch[invocations] += 1


class Accesses:
    """The last accesses to each unit (element) of a memory: by the last writer, the last reader, and one reader that does not
    happen before the last. A race with another reader may be missed; each reported race is real.
    """

    def __init__(self, order: Order, kind: int, units: int) -> None:
        self.order, self.kind = order, kind
        self.fields = {role: _Row(units) for role in ("write", "read", "reader")}

    def conflicts(self, at: np.ndarray, invocations: np.ndarray, place: int, writes: bool, atomic: bool
                  ) -> tuple[np.ndarray, int, str]:
        """Record accesses. Returns which lanes race with others, one raced access's place in the code, and the kind of race."""
        racing, other, what = np.zeros(len(at), bool), place, ""
        epoch = self.order.epoch[invocations]
        for role in ("write", "read", "reader") if writes else ("write",):
            row = self.fields[role]
            found = (row.invocation[at] >= 0) & ~(row.atomic[at] & atomic)
            if found.any():
                found &= ~self.order.is_before(self.kind, row.invocation[at], row.epoch[at], invocations)
                if found.any():
                    racing, other = racing | found, int(row.place[at[found.argmax()]])
                    what = f"{'write' if writes else 'read'} after {'write' if role == 'write' else 'read'}"
        if writes:
            row = self.fields["write"]
            row.put(at, invocations, epoch, place, atomic)
            lost = (row.invocation[at] != invocations) & (not atomic)
            if lost.any():
                racing, what = racing | lost, "two writes at once"
        else:
            self._read(at, invocations, epoch, place, atomic)
        return racing, other, what

    def _read(self, at: np.ndarray, invocations: np.ndarray, epoch: np.ndarray, place: int, atomic: bool) -> None:
        last, another = self.fields["read"], self.fields["reader"]
        was_before = self.order.is_before(self.kind, another.invocation[at], another.epoch[at], invocations)
        is_over = was_before | (another.invocation[at] < 0)
        # Keep two of several readers: the first lane, unless an earlier reader is still unordered, and the last
        another.put(at[is_over][::-1], invocations[is_over][::-1], epoch[is_over][::-1], place, atomic)
        last.put(at, invocations, epoch, place, atomic)


class _Row:
    def __init__(self, units: int) -> None:
        self.invocation = np.full(units, -1, np.int32)
        self.epoch, self.place = np.zeros(units, np.int32), np.zeros(units, np.int32)
        self.atomic = np.zeros(units, bool)

    def put(self, at: Any, invocations: Any, epoch: Any, place: int, atomic: bool) -> None:
        self.invocation[at], self.epoch[at], self.place[at], self.atomic[at] = invocations, epoch, place, atomic


def active(mask: Mask, count: int) -> np.ndarray:
    return np.arange(count) if mask is None else np.flatnonzero(mask)
