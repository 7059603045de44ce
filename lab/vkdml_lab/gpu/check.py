"""Compiles the plans' kernels with real GPUs' compilers, without a GPU, and checks the code by the bounds in demands.py.

    python -m vkdml_lab.gpu.check [--gpus NAME ...] [--cases PART ...] [--options NAME=VALUE ...] [--drivers DIR] [--output DIR]

Needs the drivers that `lab/vkdml_lab/gpu/fetch .gpu-drivers` makes. Nothing runs on a GPU; times are a model's estimates.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vkdml import Options
from vkdml_lab.gpu import times
from vkdml_lab.gpu.cases import CASES, KINDS, Case
from vkdml_lab.gpu.compiler import Compiler
from vkdml_lab.gpu.demands import EXPECTED, Expected, Held, hold
from vkdml_lab.gpu.drivers import FETCHED, ROOT
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.gpu.measure import FORCED, Part, first_call, parts
from vkdml_lab.gpu.model import ASSUMED
from vkdml_lab.reports import bullets, document, table
from vkdml_lab.reports import write as write_files

_SHOWN = 12  # most breaches of a demand that are shown
_ALL = "the options are"
_FIRST = [Case(cell, (100, 1, 256, 256), two_phases) for cell, two_phases in KINDS]  # whose first calls are measured
FIRST_CALL_SECONDS = 2.0  # limit for compiling in a first call, on one core


@dataclass(frozen=True)
class Checked:
    """The results for one GPU. parts: compiled kernels of plans. refused: a sentence for each plan that could not be made.
    pipelines: how many were compiled. first_calls: rows with the seconds that first calls take to compile.
    """

    parts: list[Part]
    refused: list[str]
    pipelines: int
    compile_seconds: float
    seconds: float
    first_calls: list[dict[str, Any]]


def row(part: Part) -> dict[str, Any]:
    """Return a compiled kernel of a plan (a Part) as a row of the report's table."""
    pipeline, found, dispatch = part.pipeline, part.estimate, part.dispatch
    figures = pipeline.figures
    shown = {
        "GPU": part.gpu.name, "case": part.case.name, "plan": part.plan, "kernel": dispatch.kernel,
        "workgroup": dispatch.constants["WORKGROUP"], "rows": dispatch.constants.get("ROWS"), "groups": part.workgroups,
        "groups/cores": part.workgroups / part.gpu.rates.units, "width": pipeline.width, "registers": figures.get("registers"),
        "spills": figures.get("spills"), "scratch": figures.get("scratch"), "shared": figures.get("shared"),
        "code": figures.get("bytes"), "compile ms": pipeline.ms,
    }
    if found:
        step = found.step.totals
        longest = max(found.limits, key=lambda name: found.limits[name])
        shown |= {
            "resident": found.resident, "weights": step["weight loads"], "state": step["state loads"],
            "from shared": step["shared loads"],
            "fma": step["multiply-adds"] / pipeline.width, "cycles": found.limits[longest], "bound by": longest,
            "us": found.seconds * 1e6,
        }
    return shown | ({"failed": pipeline.error} if pipeline.error else {})


def breaches(held: Iterable[Held], expected: Iterable[Expected] = (), is_whole: bool = False) -> tuple[str, bool]:
    """Return a text about demands and their breaches, and whether all are expected. is_whole: each expected one must occur."""
    lines, text, reasons = [], [], list[str]()
    known_of = {(one.demand, one.gpu): one for one in expected}
    for demand, group in groupby(held, lambda one: one.demand):
        every = list(group)
        broken = sorted((one for one in every if not one.is_kept), key=lambda one: one.value, reverse=not demand.least)
        unexpected: list[Held] = []
        for gpu in dict.fromkeys(one.part.gpu.name for one in every):
            of_gpu = [one for one in broken if one.part.gpu.name == gpu]
            known = known_of.get((demand.what, gpu))
            if known is None or not known.covers(of_gpu):
                unexpected += of_gpu
            elif of_gpu:
                reasons.append(f"{demand.what}, {gpu}: {len(of_gpu)}, {of_gpu[0].value:.4g} at worst: {known.why}")
            elif is_whole:
                text.append(f"{demand.what}, {gpu}: is kept now; take it out of EXPECTED in lab/vkdml_lab/gpu/demands.py")
        values = [one.value for one in every]
        bound = f"at least {demand.least:g}" if demand.least else f"at most {demand.most:g}"
        lines.append({"demand": demand.what, "bound": bound, "checked": len(every), "least": min(values), "most": max(values),
                      "broken": len(broken), "expected": len(broken) - len(unexpected)})
        sentences = [f"{one.value:.4g}: {one.part.gpu.name} {one.part.case.name} {one.part.plan} {one.part.dispatch.kernel} "
                     f"{one.part.pipeline.error}" for one in unexpected]
        text.append(bullets(f"{demand.what}: {bound}, but", sentences, _SHOWN))
    return document(table(lines), *text, bullets("Expected, and so no failure:", reasons, len(reasons))), not any(text)


def check(name: str, cases: list[str], drivers: Path | None, keep: Path | None, forced: dict[str, Options]) -> Checked:
    """Plan cases for the GPU `name` and compile all plans. keep: a folder for assembly. forced: options of plans, by name."""
    start = time.perf_counter()
    compiler = Compiler(GPUS[name], drivers, keep)
    try:
        found = [one for case in cases for one in parts(compiler, CASES[case], forced)]
        took = [{"GPU": name, "case": case.name, **first_call(compiler, case)} for case in _FIRST]
    finally:
        compiler.close()
    made = {id(one.pipeline): one.pipeline for one in found if isinstance(one, Part)}
    # The assembly has been read, and need not be sent to another process
    light = {key: replace(pipeline, assembly="") for key, pipeline in made.items()}
    return Checked([replace(one, pipeline=light[id(one.pipeline)]) for one in found if isinstance(one, Part)],
                   [one for one in found if isinstance(one, str)], len(made), sum(one.ms for one in made.values()) / 1e3,
                   time.perf_counter() - start, took)


def check_all(names: list[str], *arguments: Any) -> dict[str, Checked]:
    """Run `check` for each GPU, in as many processes as there are cores. arguments: `check`'s others."""
    found: dict[str, Checked] = {}
    with (ProcessPoolExecutor(os.cpu_count()) as pool, tqdm(total=len(names), unit="GPU", disable=None) as progress):
        running = {pool.submit(check, name, *arguments): name for name in names}
        for one in as_completed(running):
            found[running[one]] = one.result()
            progress.set_postfix_str(running[one])
            progress.update()
    return {name: found[name] for name in names}


def write(folder: Path, report: list[str], rows: list[dict[str, Any]]) -> None:
    """Write the report, and a CSV table of all compiled kernels, including those that only a tuner or fallback uses."""
    write_files(folder, {"gpu-check.md": document(*report)})
    with (folder / "gpu-check.csv").open("w", newline="") as file:
        lines = csv.DictWriter(file, list(dict.fromkeys(name for one in rows for name in one)))
        lines.writeheader()
        lines.writerows(rows)


def option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.gpu.check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", nargs="+", choices=GPUS, default=list(GPUS), metavar="NAME", help=" ".join(GPUS))
    parser.add_argument("--cases", nargs="+", default=[""], metavar="PART", help="of names in lab/vkdml_lab/gpu/cases.py (all)")
    parser.add_argument("--options", nargs="+", type=option, metavar="NAME=VALUE", help="plan only with these of vkdml.Options")
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what lab/vkdml_lab/gpu/fetch made (.gpu-drivers)")
    parser.add_argument("--output", type=Path, help="folder for the report and all assemblies (gpu-check-report)",
                        default=ROOT / "gpu-check-report")
    arguments = parser.parse_args()
    start = time.perf_counter()
    cases = [name for name in CASES if any(part in name for part in arguments.cases)]
    forced = {_ALL: Options(**dict(arguments.options))} if arguments.options else FORCED
    checked = check_all(arguments.gpus, cases, arguments.drivers, arguments.output / "assembly", forced)
    found = [part for one in checked.values() for part in one.parts]
    refused = [sentence for one in checked.values() for sentence in one.refused]
    summary, all_kept = breaches(hold(found), EXPECTED, len(cases) == len(CASES) and forced == FORCED)
    shown = table(row(part) for part in found if part.plan in forced)
    took = table({"GPU": name, "pipelines": one.pipelines, "compiling, s": one.compile_seconds, "in all, s": one.seconds}
                 for name, one in checked.items())
    first_calls = [row for one in checked.values() for row in one.first_calls]
    write(arguments.output, ["# What GPUs' compilers make of the plans", ASSUMED, "## Demands", summary, "## What it took",
                             took, "## What a first call compiles, s of a core", table(first_calls), "## Steps",
                             times.table(found), "## Pipelines", shown, "## Refused", *refused],
          [row(part) for part in found])
    pipelines, compiling = (sum(getattr(one, name) for one in checked.values()) for name in ("pipelines", "compile_seconds"))
    slowest = max(first_calls, key=lambda row: row["all"])
    print(shown if arguments.options else "", summary,
          f"A first call compiles for {slowest['all']:.1f} s of a core at most ({slowest['GPU']}, {slowest['case']}), of "
          f"{FIRST_CALL_SECONDS:g}.",
          f"{len(refused)} plans are refused; the report is {arguments.output}/gpu-check.md. All took "
          f"{time.perf_counter() - start:.0f} s; {pipelines} pipelines of {len(checked)} GPUs {compiling:.0f} s of a core",
          sep="\n\n")
    return 0 if all_kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
