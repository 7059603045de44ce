"""Submissions made of operations, with the barriers between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .memory import Bound, DeviceMemory

NONE: frozenset[Any] = frozenset()


class Operation(NamedTuple):
    """A dispatch, a copy or a change of owner. record: into a Submission. copies: memory of an upload or readback. size: its
    bytes; None: all.
    """

    record: Callable[[Any], None]
    reads: frozenset[DeviceMemory] = NONE
    writes: frozenset[Bound] = NONE
    copies: DeviceMemory | None = None
    size: int | None = None
    starts_submission: bool = False
    is_dispatch: bool = True


class Builder:
    """Makes submissions of operations, with barriers where an operation depends on one before it.

    runs: functions that run the submissions, and calls between them, in order. submissions, dispatches: their numbers.
    """

    def __init__(self, gpu: Any, merges: bool = False) -> None:
        self._gpu = gpu
        self._merges = merges
        self.runs: list[Callable[..., None]] = []
        self.submissions = self.dispatches = 0
        self._start()

    def _start(self) -> None:
        self._submission: Any = None
        self._written: set[DeviceMemory] = set()  # memory that operations or uploads wrote since the last barrier
        self._copied: dict[DeviceMemory, int | None] = {}  # memory uploaded or read back, with the bytes copied
        self._read: set[DeviceMemory] = set()     # memory that dispatches read
        self._uploaded: set[DeviceMemory] = set()
        self._seen: set[Bound] = set()      # parts that dispatches wrote before a copy of the buffer
        self._unread: set[Bound] = set()    # parts that dispatches wrote since the buffer was last copied

    def call(self, work: Callable[[], None]) -> None:
        self.finish()
        self.runs.append(work)

    def add(self, *operations: Operation) -> None:
        for operation in operations:
            changes = {part.buffer for part in operation.writes}
            # Buffers that need a barrier first. kp orders an upload before a dispatch, and a dispatch before a readback
            needed = changes & (self._written | self._read)
            if operation.copies is None:
                needed |= operation.reads & self._written | changes & self._copied.keys()
            if operation.starts_submission or operation.copies in self._copied:
                self.finish()
            if self._submission is None:
                self._submission = self._gpu.create_submission()
            elif needed:
                self._submission.barrier(sorted(needed, key=lambda buffer: buffer._serial))
                self._written -= needed
                self._read -= needed
            operation.record(self._submission)
            if operation.copies is None:
                self.dispatches += operation.is_dispatch
                self._written |= changes
                self._read |= operation.reads
                self._unread |= operation.writes
            else:
                self._copied |= {operation.copies: operation.size}
                self._uploaded |= changes
                seen = {part for part in self._unread if part.buffer is operation.copies}
                self._seen |= seen
                self._unread -= seen

    def finish(self) -> None:
        """End the current submission."""
        if self._submission is not None:
            read_in_place = {part.buffer for part in self._seen | self._unread if part.buffer.has_copy}
            if read_in_place and self._gpu.host_memory:
                self._submission.show(sorted(read_in_place, key=lambda buffer: buffer._serial))
            self.runs.append(self._runner(self._submission))
            self.submissions += 1
        self._start()

    def _runner(self, submission: Any) -> Callable[..., None]:
        """Return the function that runs a submission, and that counts what it writes to Buffers, if any."""
        seen, unread = ([part for part in parts if part.buffer._is_counted] for parts in (self._seen, self._unread))
        copied: dict[Any, int | None] = {memory: size for memory, size in self._copied.items() if memory._is_counted}
        late = [part for part in unread if part.buffer in copied]
        read_back = copied.keys() - self._uploaded if self._merges else set()
        if not (seen or unread or copied):  # all calls but those of DirectML's objects
            return lambda *meanwhile: submission.run(*meanwhile)

        def run() -> None:
            for part in seen:  # first, as a submission that fails may have changed them
                part._mark_computed()
            unsent = [(buffer, buffer._unsent()) for buffer in read_back]
            for part in unread:
                part._mark_computed()
            submission.run()
            for buffer, size in copied.items():
                buffer._mark_copied(size)
            for buffer, arrays in unsent:
                buffer._put_back(arrays)
            for part in late:
                part._mark_computed()

        return run
