"""What devices are given for a table of problems: a change that is to change no plan and no kernel leaves it as it is.

    python -m tests.planning.snapshot --write         write snapshot.json again: a digest for each device and way to run
    python -m tests.planning.snapshot --rows FILE     write a row for each plan (of the tree before, say)
    python -m tests.planning.snapshot --against FILE  print the rows that differ from such a file

A plan is described by what a driver sees of it: SPIR-V without its debug names, values of constants by their ids, buffers,
push constants in order, workgroups, and where submissions start. So names in the source may change.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from vkdml.engine.vulkan import spirv as kernels
from vkdml.errors import InvalidArgumentError
from vkdml.operators import element_types
from vkdml.planning.options import Options
from vkdml.planning.plan import plan
from vkdml_lab.suite.devices import DEVICES, GPUS, make_problem
from vkdml_lab.suite.support import CELLS

FILE = Path(__file__).with_suffix(".json")
_DEBUG = {3, 4, 5, 6, 7, 8, 317, 330}  # OpSource, OpName, OpMemberName, OpLine and the like

_SIZES = [(1, 1, 5, 5, 1), (100, 1, 256, 256, 1), (3, 2, 40, 70, 2), (300, 16, 64, 128, 2), (50, 64, 512, 512, 1),
          (7, 300, 33, 1030, 1)]
_WAYS = {
    "": Options(), "sequence": Options(schedule="sequence"), "stepped": Options(schedule="stepped"),
    "persistent": Options(schedule="persistent"),
    "fused": Options(fused=True), "resident": Options(resident=True), "plain": Options(lanes=False),
    "chunks": Options(chunk_steps=2, workspace_bytes=50_000),
}
_ALL_TYPES = "", "persistent"


def snapshot() -> dict[str, dict[str, str]]:
    """Digests: of each kernel, and of each plan with the kernels that it runs."""
    rows = {}
    for (device, info), cell, sizes, element, (named, options), has_lengths in product(
            {**DEVICES, **GPUS}.items(), CELLS, _SIZES, element_types.ALL, _WAYS.items(), (True, False)):
        if (not has_lengths and (sizes[0] < 100 or named)) or (element is not element_types.FLOAT32 and named not in _ALL_TYPES):
            continue
        changes = {} if has_lengths else {"SequenceLengthsTensor": None}
        problem = make_problem(*sizes, cell=cell, element=element, **changes)
        try:
            described, ran = _described(plan(problem, info, options))
        except InvalidArgumentError:
            continue
        name = "x".join(map(str, sizes))
        rows[f"{device}: {cell.name} {name} {element.name} {named}{'' if has_lengths else 'no lengths'}".strip()] = (
            f"{_digest(described)} {' '.join(ran)}")
    return {"kernels": {name: _stripped(name) for name in _kernels()}, "plans": rows}


def _kernels() -> list[str]:
    spirv = Path(str(kernels.__file__)).resolve().parents[2] / "spirv"
    return sorted(str(path.relative_to(spirv).with_suffix("")) for path in spirv.rglob("*.spv"))


def _described(of_plan):
    places = {}

    def place(name):
        return name if name.endswith("Tensor") else places.setdefault(name, len(places))

    def of(dispatch):
        kernel = kernels.load(dispatch.kernel)
        buffers = kernel.order({block: place(name) for block, name in dispatch.buffers.items()}, None)
        ids = {number: dispatch.constants[name] for name, number in kernel.interface.constant_ids.items()}
        return [dispatch.kernel, _stripped(dispatch.kernel), sorted(ids.items()), buffers, [place(name) for name in dispatch.writes],
                list(dispatch.groups), kernel.push_words(dispatch.push), dispatch.starts_submission]

    parts = of_plan.initialize, of_plan.execute, of_plan.fallback
    described = [[of(dispatch) for dispatch in part] for part in parts]
    sizes = sorted((place(name), size) for name, size in of_plan.buffers.items())
    timed_out = of_plan.timed_out and place(of_plan.timed_out)
    return [described, sizes, timed_out], sorted({dispatch.kernel for part in parts for dispatch in part})


@cache
def _stripped(name: str) -> str:
    """A digest of a kernel without its debug names."""
    words = np.frombuffer(kernels.load(name).spirv, "<u4")
    kept, at = [words[:5]], 5
    while at < len(words):
        count, opcode = int(words[at]) >> 16, int(words[at]) & 0xFFFF
        if opcode not in _DEBUG:
            kept.append(words[at:at + count])
        at += count
    return _digest(np.concatenate(kept).tolist())


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def differences(before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """A line for each row that differs."""
    return [f"{table}: {row}: {before[table].get(row, 'not there')} -> {now[table].get(row, 'not there')}"
            for table in before for row in sorted({*before[table], *now[table]})
            if before[table].get(row) != now[table].get(row)]


def joined(rows: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """One digest for the plans of each device and way to run."""
    groups: dict[str, list[str]] = {}
    for row, described in rows["plans"].items():
        device, rest = row.split(": ")
        groups.setdefault(f"{device}: {' '.join(rest.split(' ')[3:]) or 'default'}", []).append(f"{rest} {described}")
    return {"kernels": rows["kernels"], "plans": {group: _digest(sorted(lines)) for group, lines in groups.items()}}


def main(arguments: list[str]) -> None:
    match arguments:
        case ["-h" | "--help"]:
            print(__doc__)
        case ["--write"]:
            FILE.write_text(_json(joined(snapshot())))
        case ["--rows", path]:
            Path(path).write_text(_json(snapshot()))
        case ["--against", path]:
            print("\n".join(differences(json.loads(Path(path).read_text()), snapshot())) or "nothing differs")
        case _:
            raise SystemExit(__doc__)


def _json(rows: dict[str, dict[str, str]]) -> str:
    return json.dumps(rows, indent=0, sort_keys=True) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
