"""Tensors that go from one execution to the next, on the device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .device import Buffer
from .operator import Device


class Carried:
    """Two buffers for each, which are read and written in turns. With one, a failed execution would leave neither the old
    values nor the new ones.

    inputs: by the outputs that they become. sizes: bytes by the names of both. At first all are zeros.
    """

    def __init__(self, device: Device, inputs: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        self._pairs = []
        for output, name in inputs.items():
            size = max(sizes[output], sizes[name])
            self._pairs.append((name, output, [device.create_buffer(size) for _ in range(2)]))
        self.turns = 2 if inputs else 1
        self.turn = 0
        for name, _, _ in self._pairs:
            self.current(name).upload(np.zeros(self.current(name).size_in_bytes // 4, np.uint32))

    def buffers(self) -> dict[str, Buffer]:
        """Of this turn, by name."""
        return {name: buffer for source, output, buffers in self._pairs
                for name, buffer in ((source, buffers[self.turn]), (output, buffers[1 - self.turn]))}

    def current(self, name: str) -> Buffer:
        """With what the next execution reads as this input: the last value of this output."""
        return next(buffers[self.turn] for *names, buffers in self._pairs if name in names)

    def advance(self) -> None:
        """To be called after an execution."""
        self.turn = (self.turn + 1) % self.turns
