"""An import that would configure the application's logging does not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def logging_left_alone() -> Iterator[None]:
    """kp calls logging.basicConfig when it is imported, after which the application's own call would change nothing.

    Meanwhile that function does nothing in this thread. In the other threads it works as always.
    """
    basic_config = logging.basicConfig
    importing: int | None = threading.get_ident()

    def elsewhere(**arguments: Any) -> None:
        if threading.get_ident() != importing:
            basic_config(**arguments)

    logging.basicConfig = elsewhere
    try:
        yield
    finally:
        importing = None  # for those who hold on to this function
        if logging.basicConfig is elsewhere:
            logging.basicConfig = basic_config
