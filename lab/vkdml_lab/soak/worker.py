"""One process of the soak (a life): python -m vkdml_lab.soak.worker FILE --seed N --seconds S [--faults FOLDER]

A life has a few operators. It calls them at random, in rounds, until its time is over. After each round, it writes a line of
JSON to FILE, with its use of resources and its failed calls. The running call is in a file beside FILE, with the suffix .call.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from vkdml_lab.fuzz.calls import Call, Operator, palette
from vkdml_lab.fuzz.face import device
from vkdml_lab.fuzz.faces import FACES
from vkdml_lab.fuzz.search import JUDGED, search
from vkdml_lab.soak.faults import Faults
from vkdml_lab.soak.growth import MIB
from vkdml_lab.suite import heap_operators, heaps
from vkdml_lab.suite.support import random_numbers

OPERATORS, CALLS, STRIKES = 3, 150, 9  # operators of a life; calls and faults of a round
RECORDINGS, RECORDING_STRIKES = 25, 2  # recordings (lab/vkdml_lab/suite/heaps.py) of a round, and those with faults
# Largest T and B, and how many different T, B and arrays: few, so that caches are soon full
LONGEST, LARGEST, LENGTHS, BATCHES, ARRAYS = 16, 10, 2, 2, 2


@dataclass
class Life:
    """The work of one process of the soak. seed: of random calls. before: called with each call. faults: makes calls fail."""

    file: Path
    seed: int
    seconds: float
    faults: Faults | None = None
    before: Callable[[str], object] = lambda call: None
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    calls: int = 0

    def run(self) -> None:
        operators, round_ = palette(self.seed, OPERATORS), 0
        warm_up(operators, **drawn(self.seed))
        started = time.monotonic()
        with self.file.open("w", buffering=1) as lines:
            while round_ == 0 or time.monotonic() - started < self.seconds:
                seed = self.seed * 100_000 + round_
                failures = self._round(operators, seed) + self._recordings(seed)
                round_ += 1
                lines.write(json.dumps({"sample": self._sample(), "failures": failures, "struck": self.struck,
                                        "counts": [[*key, count] for key, count in self.counts.items()]}) + "\n")

    def _round(self, operators: Sequence[Operator], seed: int) -> list[dict[str, str]]:
        """Make the random calls of a round. Returns the failed ones, each as {"call": text, "error": text}."""
        made: list[Call] = []

        def begin(call: Call) -> None:
            made.append(call)
            self._begin(call.to_json())

        found = search(operators, CALLS, seed, self.counts, begin, **drawn(self.seed))
        failures = [{"call": found.call.to_json(), "error": f"{type(found.error).__name__}: {found.error}"}] if found else []
        if self.faults is not None and not found:
            strike = self.faults.strike
            failures += self._struck((call.to_json(), partial(strike, call, self.struck)) for call in made[-STRIKES:])
        return failures

    def _recordings(self, seed: int) -> list[dict[str, str]]:
        """Run random programs of suite/heaps.py (commands over shared buffers). Returns the failed ones, as `_round` does."""
        made: list[list[Any]] = []
        desc = heap_operators.drawn(random_numbers(self.seed))

        def begin(actions: list[Any]) -> None:
            made.append(actions)
            self._begin(json.dumps(actions))

        try:
            heaps.search(device(), RECORDINGS, seed, desc, begin)
        except AssertionError as error:
            return [{"call": f"recordings of {desc}, {error}", "error": repr(error.__cause__)}]
        self.counts["recording", JUDGED] += RECORDINGS
        if self.faults is None:
            return []
        return self._struck((json.dumps(actions), partial(self.faults.strike_recording, actions, desc, self.struck))
                            for actions in made[-RECORDING_STRIKES:])

    def _struck(self, strikes: Iterable[tuple[str, Callable[[], object]]]) -> list[dict[str, str]]:
        """Make calls while the driver fails. strikes: a call's text and function. Returns the failures, as `_round` does."""
        failures = []
        for call, strike in strikes:
            self._begin(call)
            try:
                strike()
            except Exception as error:  # the next calls follow nevertheless
                failures.append({"call": call, "error": f"with a failing driver, {type(error).__name__}: {error}"})
        return failures

    def _begin(self, call: str) -> None:
        self.calls += 1
        self.file.with_suffix(".call").write_text(call)
        self.before(call)

    def _sample(self) -> dict[str, Any]:
        gc.collect()
        _C.malloc_trim(0)  # returns freed memory, so that it does not count
        return {"calls": self.calls, **taken()}


def drawn(seed: int) -> dict[str, list[int]]:
    """Draw the values that the calls of a life use for T ("steps"), for B ("rows") and as seeds of arrays ("seeds")."""
    rng = np.random.default_rng(seed)
    return {name: sorted(int(number) for number in rng.integers(1, most + 1, count))
            for name, most, count in (("steps", LONGEST, LENGTHS), ("rows", LARGEST, BATCHES), ("seeds", 1000, ARRAYS))}


_C = ctypes.CDLL(None)


def taken() -> dict[str, float]:
    """Return how much of each resource in growth.ALLOWED this process uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"resident memory": pages * os.sysconf("SC_PAGE_SIZE") / MIB, "file handles": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")), "Python's objects": len(gc.get_objects())}


def warm_up(operators: Sequence[Operator], steps: Sequence[int], rows: Sequence[int], seeds: Sequence[int]) -> None:
    """Make all calls whose compiled code stays in memory (torch.compile's), so that this growth ends before the first sample.
    Also start the threads that PyTorch starts at the first large array.
    """
    if torch := sys.modules.get("torch"):
        torch.ones(2**18).exp()
    faces = [(name, face) for name, face in FACES.items() if face.keeps_wrong]
    for (name, face), operator, t, b, layout, strided, seed in product(
            faces, operators, steps, rows, range(2), (False, True), seeds):
        call = Call(name, operator, t, b, layout=layout, strided=strided, seed=seed)
        face.run(call, {key: argument.value for key, argument in face.arguments(call).items()})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.soak.worker", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--faults", type=Path, metavar="FOLDER", help="where the layer was built that makes functions fail")
    given = parser.parse_args()
    Life(given.file, given.seed, given.seconds, Faults(given.faults, given.seed) if given.faults else None).run()


if __name__ == "__main__":
    main()
