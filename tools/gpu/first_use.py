"""What the first call of a cell on a GPU compiles: for the self-test, the test of meetings and what the tuner times. It has a
budget of a core's time.

    python -m tools.gpu.first_use [--gpus NAME ...] [--drivers DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.gpu.cases import KINDS, Case
from tools.gpu.compiler import Compiler, Pipeline
from tools.gpu.drivers import FETCHED
from tools.gpu.gpus import GPUS
from vkdml import DeviceInfo
from vkdml.laboratory import (
    FLOAT32,
    MEETINGS,
    Plan,
    Planner,
    Problem,
    kind_of,
    likely,
    of_representative,
    plan_of,
    plans_of,
    plans_of_test,
    problem_of,
    table,
)

BUDGET_MS = 2000
_BUDGETED = ("rx7900xtx", "rtx3090", "arc-a770")
_SIZES = (100, 1, 256, 256)  # T, B, I, H


def first_use(info: DeviceInfo, problem: Problem) -> Iterator[tuple[str, Iterable[Plan]]]:
    """The plans that are run before a problem's own, by what for."""
    yield "self-test", plans_of(info, problem_of(kind_of(problem), FLOAT32))
    for meeting in MEETINGS:
        yield f"meeting, {meeting}", plans_of_test(info, problem.cell, meeting)
    planner = Planner(of_representative(problem), info)
    yield "tuner", (plan_of(planner, tiling) for tiling in likely(planner))


def rows(compiler: Compiler, info: DeviceInfo, problem: Problem, name: str) -> Iterator[dict[str, Any]]:
    """How many pipelines each part has that the ones before have not, with their time; and a row of all."""
    made: dict[int, Pipeline] = {}
    for part, plans in first_use(info, problem):
        found = {id(pipeline): pipeline for plan in plans for dispatch in plan.initialize + plan.execute
                 if id(pipeline := compiler.compile(dispatch)) not in made}
        made |= found
        yield {"GPU": compiler.gpu.name, "case": name, "part": part, "pipelines": len(found), "ms": _milliseconds(found)}
    yield {"GPU": compiler.gpu.name, "case": name, "part": "all", "pipelines": len(made), "ms": _milliseconds(made)}


def _milliseconds(made: dict[int, Pipeline]) -> float:
    return round(sum(pipeline.ms for pipeline in made.values()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.first_use", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", nargs="+", choices=GPUS, default=_BUDGETED, metavar="NAME", help=" ".join(_BUDGETED))
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what tools/gpu/fetch made (.gpu-drivers)")
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in arguments.gpus:
        compiler = Compiler(GPUS[name], arguments.drivers)
        try:
            info = compiler.device_info()
            for cell, two_phases in KINDS:
                case = Case(cell, _SIZES, two_phases)
                found += rows(compiler, info, case.problem, case.name)
        finally:
            compiler.close()
    print(table(found))
    return 0 if all(row["ms"] <= BUDGET_MS for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
