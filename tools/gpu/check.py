"""What real GPUs' compilers make of the plans' kernels, on a machine without a GPU, and whether the demands on them are met.

    python -m tools.gpu.check [--gpus NAME ...] [--cases PART ...] [--options NAME=VALUE ...] [--drivers DIR] [--output DIR]

Needs the drivers that `tools/gpu/fetch .gpu-drivers` makes. Nothing runs on a GPU: times are a model's.
"""

from __future__ import annotations

import argparse
import ast
import csv
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tools.gpu.cases import CASES, AnyCase
from tools.gpu.compiler import Compiler
from tools.gpu.demands import Held, hold
from tools.gpu.drivers import FETCHED, ROOT
from tools.gpu.gpus import GPUS, Gpu
from tools.gpu.measure import FORCED, Part, parts
from tools.gpu.model import ASSUMED
from vkdml import Options
from vkdml.laboratory import bullets, document, table
from vkdml.laboratory import write as write_files

_AT_ONCE = 2  # compilers, each with one thread
_SHOWN = 12   # breaches of a demand
_ALL = "the options are"


def row(part: Part) -> dict[str, Any]:
    """A row of the table."""
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
        hot, step = found.hot, found.step.totals
        longest = max(found.limits, key=lambda name: found.limits[name])
        shown |= {
            "resident": found.resident, "weights": step["weight loads"], "state": step["state loads"],
            "from shared": step["shared loads"],
            "under way": hot.most, "drains": hot.drains, "fma": step["multiply-adds"] / pipeline.width,
            "loop cycles": hot.cycles, "cycles": found.limits[longest], "bound by": longest, "us": found.seconds * 1e6,
        }
    return shown | ({"failed": pipeline.error} if pipeline.error else {})


def breaches(held: Iterable[Held]) -> tuple[str, bool]:
    """A table of the demands with what breaks each, and whether all are met."""
    lines, text = [], []
    for demand, group in groupby(held, lambda one: one.demand):
        every = list(group)
        broken = sorted((one for one in every if not one.is_kept), key=lambda one: one.value, reverse=not demand.least)
        values = [one.value for one in every]
        bound = f"at least {demand.least:g}" if demand.least else f"at most {demand.most:g}"
        lines.append({"demand": demand.what, "bound": bound, "checked": len(every), "least": min(values), "most": max(values),
                      "broken": len(broken)})
        sentences = [f"{one.value:.4g}: {one.part.gpu.name} {one.part.case.name} {one.part.plan} {one.part.dispatch.kernel} "
                     f"{one.part.pipeline.error}" for one in broken]
        text.append(bullets(f"{demand.what}: {bound}, but", sentences, _SHOWN))
    return document(table(lines), *text), not any(text)


def check(gpu: Gpu, cases: list[AnyCase], drivers: Path | None, keep: Path | None, forced: dict[str, Options],
          progress: tqdm[Any]) -> tuple[list[Part], list[str]]:
    """All parts of all plans on a GPU, and the plans that are refused."""
    compiler = Compiler(gpu, drivers, keep)
    try:
        info = compiler.device_info()
        found: list[Part | str] = []
        for case in cases:
            found += parts(compiler, info, case, forced)
            progress.update()
    finally:
        compiler.close()
    return [one for one in found if isinstance(one, Part)], [one for one in found if isinstance(one, str)]


def write(folder: Path, report: list[str], rows: list[dict[str, Any]]) -> None:
    """The report, and a table of all pipelines, also of those that only a tuner or a fallback takes."""
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
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", nargs="+", choices=GPUS, default=list(GPUS), metavar="NAME", help=" ".join(GPUS))
    parser.add_argument("--cases", nargs="+", default=[""], metavar="PART", help="of names in tools/gpu/cases.py (all)")
    parser.add_argument("--options", nargs="+", type=option, metavar="NAME=VALUE", help="plan only with these of vkdml.Options")
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what tools/gpu/fetch made (.gpu-drivers)")
    parser.add_argument("--output", type=Path, help="folder for the report and all assemblies (gpu-check-report)",
                        default=ROOT / "gpu-check-report")
    arguments = parser.parse_args()
    cases = [case for name, case in CASES.items() if any(part in name for part in arguments.cases)]
    forced = {_ALL: Options(**dict(arguments.options))} if arguments.options else FORCED
    with (tqdm(total=len(cases) * len(arguments.gpus), unit="case", disable=None) as progress,
          ThreadPoolExecutor(_AT_ONCE) as pool):
        results = list(pool.map(lambda name: check(GPUS[name], cases, arguments.drivers, arguments.output / "assembly", forced,
                                                   progress), arguments.gpus))
    found = [part for of_gpu, _ in results for part in of_gpu]
    refused = [sentence for _, of_gpu in results for sentence in of_gpu]
    summary, all_kept = breaches(hold(found))
    shown = table(row(part) for part in found if part.plan in forced)
    write(arguments.output, ["# What GPUs' compilers make of the plans", ASSUMED, "## Demands", summary, "## Pipelines", shown,
                             "## Refused", *refused], [row(part) for part in found])
    print(shown if arguments.options else "", summary,
          f"{len(refused)} plans are refused; the report is {arguments.output}/gpu-check.md", sep="\n\n")
    return 0 if all_kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
