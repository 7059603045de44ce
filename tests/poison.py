"""A plugin of pytest's: bytes that a run has not written itself are NaN. `pytest -p tests.poison tests/faces`."""

import numpy as np
import pytest

from vkdml.engine import execution as executions
from vkdml.engine.execution import Execution
from vkdml.engine.vulkan import gpu as devices


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Before each run, all buffers that executions share are filled with bytes of 0xFF: NaN in every type of floats. Returns how
    many were filled so far, in a list of one.
    """
    places, prepared, filled = executions.places, Execution.prepared, [0]

    def fill(execution, *arguments):
        commands = prepared(execution, *arguments)
        buffers = [entry.value for key, entry in execution.gpu.store._entries.items() if key[0] == "scratch"]
        for buffer in buffers:
            buffer.upload(np.full(buffer.size_in_bytes, 0xFF, np.uint8))
        filled[0] += len(buffers)
        return commands

    for gpu in devices._open.values():
        gpu.store.clear()  # of buffers without a copy on the host, which could not be filled
    monkeypatch.setattr(executions, "places", lambda sizes, with_copies, *others: places(sizes, sizes, *others))
    monkeypatch.setattr(Execution, "prepared", fill)
    return filled
