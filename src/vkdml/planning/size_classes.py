"""Classes of lengths T and batches B. Problems of a class that are alike otherwise have the kernels of one, its representative,
so that they share what is compiled.

There are as few as can be. Each has a reason: how much longer its neighbour's kernels would take, by the model of costs.
- one step: weights are not loaded to stay, and there is no dispatch for a projection (up to 5 times);
- one row, up to 4, up to 8, up to 16: a tile multiplies all rows that it may have (1.3 to 2 times);
- up to 32 rows of many steps: a tile of 32 leaves one of two cores idle, unless its units are shared out (1.9 times);
- more than 128: GPUs have work for all their cores in tiles of several rows (1.4 to 1.7 times).
A representative is as long as makes its class and the ones beside it agree on the projection.
"""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """T and B."""

    steps: int
    batch: int


_MORE = 2**32
# The most rows of each class, and its representative; of one step, then of more
_ONE_STEP = {1: Sizes(1, 1), 4: Sizes(1, 4), 16: Sizes(1, 8), _MORE: Sizes(1, 32)}
_STEPS = {1: Sizes(250, 1), 4: Sizes(200, 4), 8: Sizes(100, 8), 16: Sizes(100, 16), 32: Sizes(100, 32), 128: Sizes(50, 64),
          _MORE: Sizes(50, 256)}


def representative(steps: int, batch: int) -> Sizes:
    """Of the class that T and B are in."""
    classes = _ONE_STEP if steps == 1 else _STEPS
    return next(sizes for most, sizes in classes.items() if batch <= most)
