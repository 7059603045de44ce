"""Work that may give up, and what does it then instead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .commands import Commands
from .device import Buffer, Gpu
from .store import Lease

Record = Callable[[Commands], None]

_log = logging.getLogger(__name__)


@dataclass
class Attempts:
    """What came of those at one kind of work. given_up: how many gave up. goes_on: whether it is tried again after that."""

    goes_on: bool = True
    given_up: int = 0

    @property
    def is_worthwhile(self) -> bool:
        """Each that gives up has waited before."""
        return self.goes_on or not self.given_up


class Fallback:
    """Runs an attempt, and the fallback where the attempt gave up, or is not worthwhile. Both do the same work.

    attempt, fallback: record their dispatches. The fallback is recorded, and its pipelines are made, when it is first needed.
    gave_up: the buffer and the index of the uint32 in it that an attempt sets when it gives up. The words from there to the
    buffer's end are where workgroups meet; they must be 0 when an attempt starts. An attempt that ends leaves them so.
    lease: of whoever keeps it.
    """

    def __init__(self, gpu: Gpu, attempt: Record, gave_up: tuple[Buffer, int], fallback: Record, attempts: Attempts,
                 lease: Lease | None = None) -> None:
        self._gpu, self._attempts, self._lease = gpu, attempts, lease
        self._buffer, self._word = gave_up
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
            self._attempts.given_up += 1
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
