"""Searches for a call that fails among random ones, and shrinks it to a small one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from vkdml_lab.fuzz import running
from vkdml_lab.fuzz.calls import Call, Operator, calls
from vkdml_lab.fuzz.faces import FACES

REFUSED, JUDGED, BLIND = "refused, then right", "right", "ran, but too sensitive to judge"


@dataclass(frozen=True)
class Found:
    """The smallest failing call that was found, and its error."""

    call: Call
    error: BaseException

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}\nkeep it in tests/fuzz/regressions.json:\n{self.call.to_json()}"


def search(operators: Sequence[Operator], count: int, seed: int, counts: Counter[tuple[str, str]],
           before: Callable[[Call], object] = lambda call: None, **drawn: Any) -> Found | None:
    """Run up to `count` random calls of these operators. Returns the smallest that fails, or None. counts: of calls by face and
    outcome; this function updates them. before: called with each call. drawn: further arguments of `calls`.
    """
    last: list[Call] = []

    @seeded(seed)
    @settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False,
              report_multiple_bugs=False, phases=[Phase.generate, Phase.shrink])
    @given(calls(operators, FACES, **drawn))
    def check(call: Call) -> None:
        last[:] = [call]
        before(call)
        is_judged = running.run(call)
        counts[call.face, (REFUSED if call.breaks else JUDGED) if is_judged else BLIND] += 1

    try:
        check()
    except Exception as error:  # hypothesis runs the smallest failing call last
        return Found(last[0], error)
    return None
