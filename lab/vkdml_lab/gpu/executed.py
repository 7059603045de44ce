"""Counts the instructions of steps on the emulated RX 7900 XTX, and prints them beside those that the model assumes.

    python -m vkdml_lab.gpu.executed [--drivers DIR]

Counts of steps alone are the difference of two short runs. They are no times, as the emulator has none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vkdml_lab.gpu.assembly import BESIDE, BRANCH, CONSTANT, LOAD, SHARED, SHARED_STORE, STORE, Instruction, parse
from vkdml_lab.gpu.cases import Case
from vkdml_lab.gpu.compiler import Compiler, as_of_a_real_one
from vkdml_lab.gpu.drivers import FETCHED
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.gpu.loops import Loop, loops, of_products
from vkdml_lab.gpu.measure import FORCED, PERSISTENT, SEQUENCE, Part, parts
from vkdml_lab.gpu.model import latencies
from vkdml_lab.internals import Run, Trial, ceil_div, plan, random_memory
from vkdml_lab.radeon import decoder, process
from vkdml_lab.radeon.instructions import NAMES
from vkdml_lab.reports import table

NAME = "rx7900xtx"
PLANS = [(Case("gru", (100, 1, 64, 64)), SEQUENCE), (Case("gru", (100, 1, 256, 256)), PERSISTENT),
         (Case("lstm", (100, 1, 256, 256)), PERSISTENT), (Case("gru", (100, 1, 1024, 1024)), PERSISTENT),
         *((Case("gru", (50, 4, 128, 128)), name) for name in (SEQUENCE, PERSISTENT)),
         *((Case("gru", (50, 64, 128, 128)), name) for name in (SEQUENCE, PERSISTENT)),
         (Case("gru", (50, 16, 512, 512)), PERSISTENT)]
STEPS = (3, 5)
NOTE = """Of a subgroup in a step on the emulated RX 7900 XTX, as an average of a workgroup's: what was counted / what the model
takes it to be. Waits are for memory, and for others: shared memory and scalars. They are those before which it issued fewer
instructions than a load takes cycles. "Do not run": of the model's instructions, those that never ran. Looks: how often it
looked for what others store; "of looks": the instructions of all looks, where the model has one."""
Names = tuple[str, ...]
Counts = np.ndarray  # by instruction: runs, bytes loaded, bytes past the cache, waits, instructions before them


# In the process with the emulated GPU

def _so_far() -> dict[Names, Counts]:
    """Return each program's counts so far, by the names of its instructions."""
    found: dict[Names, Counts] = {}
    for program in process.programs():
        made = program.instructions[:program.count]
        names = tuple(NAMES[one.op] for one in made)
        found[names] = found.get(names, 0) + np.array([
            [one.runs, one.loaded, one.passed, *one.waited, *one.ahead] for one in made], np.int64)
    return found


def _count(case: Case, name: str) -> dict[Names, Counts]:
    """Return the counts of one step of all workgroups."""
    from vkdml import Device

    gpu, counts = Device().gpu, [_so_far()]
    info = as_of_a_real_one(GPUS[NAME], gpu.info)
    whole = plan(case.problem, info, FORCED[name])
    assert whole.tiling
    # Of few steps the plan may have other tiles
    options = replace(FORCED[name], rows=whole.tiling.loop.rows, workgroup=whole.tiling.loop.workgroup)
    process.change(late=0, caches=2)
    for steps in STEPS:
        problem = replace(case, sizes=(steps, *case.sizes[1:])).problem
        run = Run(Trial(gpu, problem, random_memory(problem)), plan(problem, info, options))
        run.execute()
        assert not process.found()
        assert not run.timeouts
        counts.append(_so_far())
    before, few, many = counts
    return {names: ((of_many - 2 * few.get(names, 0) + before.get(names, 0)) / (STEPS[1] - STEPS[0]))
            for names, of_many in many.items()}


def inside(number: int) -> None:
    """Print the counts of one of PLANS."""
    print(json.dumps([[names, counts.tolist()] for names, counts in _count(*PLANS[number]).items() if counts.any()]))


# In the process that compares

def names_of(instruction: Instruction) -> list[str]:
    """Return the emulator's names of an instruction, or of two that run as a pair."""
    return [NAMES[decoder.instruction(one).op] for one in instruction.text.split(";")[0].split(" :: ")]


def taken(loop: Loop, trips: tuple[int, ...], waits: bool = False) -> Iterator[tuple[Instruction, int, bool]]:
    """Yield each instruction of a step, how often the model runs it, and whether it is in a loop that waits for others."""
    for item in loop.body:
        if isinstance(item, Instruction):
            yield item, 1, waits
        elif item.has_products and trips:
            yield from ((one, trips[0] * times, is_wait) for one, times, is_wait in taken(item, trips[1:], waits))
        else:
            run = {id(one) for one in item.at_once.instructions}
            is_wait = waits or (not item.has_products and any(one.kind == LOAD and one.coherent for one in item.instructions))
            for one, times, inner in taken(item, trips, is_wait):
                yield one, times if id(one) in run else 0, inner


def compare(part: Part, programs: dict[Names, Counts]) -> dict[str, Any]:
    """Return a row of the table: counts of a subgroup's step, and behind a slash the model's. Raises LookupError if the part's
    program did not run.
    """
    blocks, step, estimate, width = parse(part.pipeline.assembly), part.step, part.estimate, part.pipeline.width
    assert blocks
    assert step
    assert estimate
    whole, listed = loops(blocks), [one for block in blocks for one in block.instructions]
    last = max(n for n, one in enumerate(listed) if one.text.startswith("s_endpgm"))  # padding follows
    names = {id(one): names_of(one) for one in listed[:last + 1]}
    counts = programs.get(tuple(name for of_one in names.values() for name in of_one))
    if counts is None:
        raise LookupError("its program did not run")
    counts = counts / (part.workgroups * ceil_div(part.dispatch.constants["WORKGROUP"], width))
    counted_of = dict(zip(names, counts[np.cumsum([0, *map(len, names.values())])[:-1]], strict=True))
    both, shares = defaultdict[str, np.ndarray](lambda: np.zeros(2)), step.shares(part.dispatch.constants["WORKGROUP"], width)
    looks = 0.0
    for one, times, is_wait in taken(of_products(whole) if step.is_loop else whole, step.trips):
        runs, loaded, passed, *waits = counted_of[id(one)]
        share = shares[one.role]
        for kind, waited, ahead in ((LOAD, waits[0], waits[2]), (SHARED, waits[1], waits[3])):
            if ahead * ceil_div(width, 32) < waited * latencies(part.gpu.rates)[kind]:
                both[f"{kind} waits"] += min(waited, times) if is_wait else waited, 0
                break  # it hides waits for shared memory
        if is_wait:
            both["instructions of looks"] += runs, times
            looks = max(looks, runs * (one.kind == LOAD))
            continue
        both["instructions"] += runs, times * share.subgroups
        both[f"{one.kind} instructions"] += runs, times * share.subgroups
        both["do not run"] += times * (runs == 0), 0
        both[f"{one.kind} bytes"] += loaded, times * one.size * (share.subgroups if one.uniform else width * share.lanes)
        both["passed"] += passed, 0
    both[f"{LOAD} waits"][1] = estimate.step.totals[f"{LOAD} waits"]
    both[f"{SHARED} waits"][1] = sum(estimate.step.totals[f"{kind} waits"] for kind in (SHARED, CONSTANT))  # joined

    def cell(*kinds: str) -> str:
        counted, model = sum((both[kind] for kind in kinds), np.zeros(2))
        return f"{counted:.4g} / {model:.4g}"

    return {
        "case": part.case.name, "plan": part.plan, "lanes": width, "instructions": cell("instructions"),
        "scalars": cell(*(f"{kind} instructions" for kind in (BESIDE, BRANCH))),
        "loads": cell(f"{LOAD} instructions"), "from shared": cell(f"{SHARED} instructions"),
        "stores": cell(*(f"{kind} instructions" for kind in (STORE, SHARED_STORE))),
        "bytes": cell(f"{LOAD} bytes"), "bytes from shared": cell(f"{SHARED} bytes"),
        "past a cache": f"{both['passed'][0]:.4g}", "waits for memory": cell(f"{LOAD} waits"),
        "for others": cell(f"{SHARED} waits"), "do not run": f"{both['do not run'][0]:.4g}",
        "looks": f"{looks:.3g}", "of looks": cell("instructions of looks")}


def rows(drivers: Path, plans: Iterable[tuple[Case, str]] = PLANS) -> Iterator[dict[str, Any] | str]:
    """Yield a row for each of PLANS, or a sentence if its steps could not be counted."""
    for case, name in plans:
        try:
            yield from _rows(drivers, case, name)
        except (RuntimeError, LookupError, ValueError) as error:
            yield f"{case.name} {name}: its steps could not be counted: {error}"


def report(drivers: Path) -> tuple[str, list[str]]:
    """Return the table of all PLANS, and the sentences about those that could not be counted."""
    found = list(rows(drivers))
    return table(row for row in found if isinstance(row, dict)), [sentence for sentence in found if isinstance(sentence, str)]


def _rows(drivers: Path, case: Case, name: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "vkdml", "radeon", "--gpu", NAME, "--drivers", str(drivers),
               "python", "-m", "vkdml_lab.gpu.executed", "--inside", str(PLANS.index((case, name)))]
    child = subprocess.run(command, capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(f"the process ended with {child.returncode}: {child.stderr[-2000:]}")
    programs = {tuple(names): np.array(counts) for names, counts in json.loads(child.stdout.splitlines()[-1])}
    with closing(Compiler(GPUS[NAME], drivers)) as compiler:
        return [compare(part, programs) for part in parts(compiler, case, {name: FORCED[name]})
                if isinstance(part, Part) and part.is_loop and part.plan == name]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.gpu.executed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what lab/vkdml_lab/gpu/fetch made (.gpu-drivers)")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)  # number of the plan to count
    arguments = parser.parse_args()
    if arguments.inside is not None:
        inside(arguments.inside)
    else:
        counted, failed = report(arguments.drivers)
        print(counted, *failed, sep="\n\n")
        return int(bool(failed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
