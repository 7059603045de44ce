"""Attempts: dispatches of persistent workgroups, which wait for each other and may give up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakSet

import numpy as np

from .submissions import Builder, Operation
from .vulkan.buffers import Bound, Buffer

_log = logging.getLogger(__name__)


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
        _log.warning("workgroups did not meet in time: the fallback runs, %s",
                     "this time" if self.goes_on else "and from now on at once")


@dataclass(eq=False)
class Attempt:
    """Operations that may give up, and a fallback that does the same work.

    flags: the buffer in which they set the uint32 at index `word` when they give up, and which they read back. The words from
    there on, where workgroups meet, must be 0 at first; an attempt that succeeds leaves them 0. record_fallback: called when
    the fallback is first needed. writes: the parts of buffers that either changes.
    """

    flags: Buffer
    word: int
    attempts: Attempts
    operations: Sequence[Operation]
    record_fallback: Callable[[], Sequence[Operation]]
    writes: frozenset[Bound]

    @cached_property
    def fallback(self) -> Sequence[Operation]:
        return self.record_fallback()

    @cached_property
    def _fallback_alone(self) -> Builder:
        builder = Builder(self.flags.gpu)
        builder.add(*self.fallback)
        builder.finish()
        return builder

    def clear(self) -> None:
        """Make the words 0."""
        self.flags.upload(np.zeros(self.flags.size_in_bytes // 4 - self.word, np.uint32), 4 * self.word)

    def gave_up(self) -> bool:
        """Return whether the operations have given up. If so, clear the words, as other attempts may use them too."""
        if not self.flags._take((1,), np.uint32, 4 * self.word)[0]:
            return False
        self.attempts.gave_up()
        self.clear()
        return True

    def settle(self) -> None:
        """Run the fallback if the operations have given up."""
        if self.gave_up():
            for run in self._fallback_alone.runs:
                run()


_clear: WeakSet[Buffer] = WeakSet()  # buffers whose words are 0


@contextmanager
def cleared(attempts: Collection[Attempt]) -> Iterator[None]:
    """Clear the words of attempts that run in this context, where the attempt before may have left others."""
    buffers = {attempt.flags: attempt for attempt in attempts}
    for buffer, attempt in buffers.items():
        if buffer not in _clear:
            attempt.clear()
    _clear.difference_update(buffers)  # until they have succeeded
    yield
    _clear.update(buffers)
