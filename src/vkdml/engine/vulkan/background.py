"""A thread for work that nobody waits for at once, one piece after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from weakref import finalize

from ...errors import DriverError

_Work = tuple[Future[None], Callable[[], None]]
_Queue = SimpleQueue[_Work | None]  # None: the thread ends


class Background:
    """Starts its thread with the first piece of work. The thread goes when nobody holds this any more.

    It is a daemon, as a process that ends joins the others, with all that is queued, and cannot join one whose start was
    interrupted: such a thread waits for work without end.
    """

    def __init__(self) -> None:
        self._queue: _Queue | None = None
        self._starting = threading.Lock()

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Raises RuntimeError where the system gives no thread. An interrupt may leave the work queued."""
        future: Future[None] = Future()
        with self._starting:
            if self._queue is None:
                self._queue = self._start()
            self._queue.put((future, work))
        return future

    def _start(self) -> _Queue:
        queue: _Queue = SimpleQueue()
        try:
            threading.Thread(target=_work, args=(queue,), name="vkdml", daemon=True).start()
            finalize(self, queue.put, None).atexit = False
        except BaseException:  # an interrupt, perhaps of a start that goes on
            queue.put(None)
            raise
        return queue


def _work(queue: _Queue) -> None:
    while item := queue.get():
        future, work = item
        try:
            work()
        except SystemExit:  # see driver.Calls
            future.set_exception(DriverError("the process ended before the execution did"))
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        del item, future, work  # which hold the device
