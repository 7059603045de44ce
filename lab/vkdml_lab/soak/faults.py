"""Makes the driver fail in random calls. Such a call must be right or raise DriverError, and the next one must be right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vkdml import DriverError, InvalidArgumentError
from vkdml_lab.faults.layer import NONE, Fault, Layer
from vkdml_lab.fuzz import running
from vkdml_lab.fuzz.calls import Call
from vkdml_lab.fuzz.face import Part, device
from vkdml_lab.fuzz.faces import FACES
from vkdml_lab.suite import heap_operators, heaps

RIGHT, NOT_REACHED = "right all the same", "did not come so far"
# Out of host memory, out of device memory, and device lost, which is rare as everything is compiled again after it
RESULTS, SHARES = (-1, -2, -4), (0.45, 0.45, 0.1)


class Faults:
    """Makes Vulkan functions fail in a process that loaded the layer of lab/vkdml_lab/faults. folder: where it was built."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._layer = Layer(folder)
        self._rng = np.random.default_rng(seed)

    def strike(self, call: Call, outcomes: Counter[str]) -> None:
        """Make a call three times, without its broken arguments. One of its Vulkan functions fails in the second, which alone
        may raise DriverError. Raises AssertionError for wrong results. outcomes: counts how the second call ended.
        """
        call = replace(call, breaks=())
        self._layer.arm(NONE)
        try:
            self._run(call)
        except InvalidArgumentError:  # a float64 call is beyond float64's range; check_right checks that
            running.check_right(call)
            return
        self._struck(lambda: running.judge(call, self._run(call)), outcomes)
        running.check_right(call)

    def strike_recording(self, actions: list[Any], desc: Any, outcomes: Counter[str]) -> None:
        """Run a program of suite/heaps.py three times, on new heaps. In the second run, one of the Vulkan functions fails."""
        def run() -> None:
            heaps.Run(device(), heap_operators.Reference(device(), desc), Counter()).run(actions)

        self._layer.arm(NONE)
        run()
        self._struck(run, outcomes)
        run()

    def _struck(self, work: Callable[[], object], outcomes: Counter[str]) -> None:
        """Choose a Vulkan function that was called since the layer was armed. Run `work` while it fails. Count the outcome."""
        fault = self._drawn(self._layer.counts())
        self._layer.arm(fault)
        try:
            outcome = self._outcome(work)
        finally:
            is_reached = bool(self._layer.fired)
            self._layer.arm(NONE)
            device.cache_clear()  # the device may be lost
        assert is_reached or outcome == RIGHT, f"{outcome}, while nothing failed"
        outcomes[outcome if is_reached else NOT_REACHED] += 1

    def _outcome(self, work: Callable[[], object]) -> str:
        try:
            work()
        except DriverError as error:
            return type(error).__name__
        return RIGHT

    def _run(self, call: Call) -> list[Part]:
        face = FACES[call.face]
        return face.run(call, {name: argument.value for name, argument in face.arguments(call).items()})

    def _drawn(self, counts: Mapping[str, int]) -> Fault:
        function = str(self._rng.choice([name for name, count in counts.items() if count]))
        return Fault(function, int(self._rng.integers(1, counts[function] + 1)), int(self._rng.choice(RESULTS, p=SHARES)))
