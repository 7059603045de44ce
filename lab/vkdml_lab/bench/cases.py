"""The benchmark's cases: sizes of layers, their input arrays, and the number of operations in a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

GATES = {"gru": 3, "lstm": 4}
STATES = {"gru": 1, "lstm": 2}  # h, and c
QUEUED = 10  # calls in a queue


@dataclass(frozen=True)
class Case:
    """A recurrent layer that the benchmark times, and how it is called. cell: "gru" or "lstm".

    ragged: rows have different lengths. streaming: each call begins with the final state of the call before.
    """

    cell: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int = 1
    ragged: bool = False
    streaming: bool = False
    linear_before_reset: bool = True

    @property
    def name(self) -> str:
        words = {"bidirectional": self.directions == 2, "ragged": self.ragged, "streaming": self.streaming}
        shape = "x".join(map(str, (self.steps, self.batch, self.inputs, self.hidden)))
        return "-".join([self.cell, shape, *(word for word, is_on in words.items() if is_on)])

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def lengths(self) -> np.ndarray:
        """The number of valid steps of each row: T, or, if ragged, numbers spread evenly from 1 to T, in random order."""
        full = np.full(self.batch, self.steps)
        if not self.ragged:
            return full
        return np.random.default_rng(1).permutation(np.linspace(1, self.steps, self.batch).astype(full.dtype))

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the ONNX operator, by name, except hidden_size."""
        direction = {"direction": "bidirectional" if self.directions == 2 else "forward"}
        return direction | ({"linear_before_reset": self.linear_before_reset} if self.cell == "gru" else {})

    @property
    def flops(self) -> int:
        """The floating-point operations of a call: its matrix products in valid steps. A multiply-add counts as two."""
        per_step = 2 * self.gates * self.hidden * (self.inputs + self.hidden)
        return int(self.lengths.sum()) * self.directions * per_step

    @property
    def recurrent_weights(self) -> int:
        return self.directions * self.gates * self.hidden * self.hidden

    @property
    def calls(self) -> int:
        """The least number of calls that are timed together as one sample."""
        return 1000 if self.streaming else 1

    @property
    def checked_calls(self) -> int:
        """How many calls check a library's results, the first from zero states. Only the last call's results are compared."""
        return 5 if self.streaming else 1

    @property
    def states(self) -> int:
        """The number of initial states that a call takes."""
        return STATES[self.cell] if self.streaming else 0

    @property
    def state_shape(self) -> tuple[int, int, int]:
        return self.directions, self.batch, self.hidden

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of a call's outputs: y, then each last state."""
        return [(self.steps, *self.state_shape), *[self.state_shape] * STATES[self.cell]]

    def arrays(self) -> dict[str, np.ndarray]:
        """Make random inputs X, W, R and B, by these names, with ONNX's order of gates. They are the same in every process."""
        rng = np.random.default_rng(0)
        d, rows = self.directions, self.gates * self.hidden
        sizes = {"X": (self.steps, self.batch, self.inputs), "W": (d, rows, self.inputs), "R": (d, rows, self.hidden),
                 "B": (d, 2 * rows)}
        return {name: (rng.standard_normal(size) * self.hidden**-0.5).astype(np.float32) for name, size in sizes.items()}


# T, B, I, H
SHAPES = [(1, 1, 64, 64), (100, 1, 128, 128), (100, 1, 256, 256), (50, 32, 256, 256), (100, 1, 512, 512), (50, 64, 512, 512),
          (25, 64, 1024, 1024), (1000, 1, 128, 128)]

CASES = [
    *(Case("gru", *shape) for shape in SHAPES),
    Case("lstm", 100, 1, 256, 256),
    Case("lstm", 50, 32, 256, 256),
    Case("gru", 100, 16, 256, 256, directions=2),
    Case("gru", 50, 32, 256, 256, ragged=True),
    Case("gru", 1, 1, 256, 256, streaming=True),
]

# One size grows and the others are constant, except that I = H.
GROWTH = {
    "T": [Case("gru", t, 1, 128, 128) for t in (1, 10, 100, 1000, 10000)],
    "B": [Case("gru", 50, b, 128, 128) for b in (1, 4, 16, 64, 256, 512)],
    "H": [Case("gru", 50, 1, h, h) for h in (32, 64, 128, 256, 512, 1024, 2048)],
}
