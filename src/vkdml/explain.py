"""What a device would do for an operator: the plan, the memory and the time that it takes.

Nothing is compiled or run for it, but where it is to be measured, or plans are timed first (`VKDML_TUNING`).
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

from .engine.trust.trial import Run, Trial
from .faces.directml.compiled_operator import Operator
from .faces.directml.device import Device
from .operators import activations, cells, element_types
from .operators.arguments import tensor_descs
from .operators.cells import Cell
from .operators.header.descs import DML_RECURRENT_NETWORK_DIRECTION
from .operators.problem import Problem, from_desc
from .planning import words
from .planning.plan import Plan

FORM = "CELL-TxBxIxH, such as gru-100x1x256x256"
TYPES = [element.name for element in element_types.ALL]
_CELLS = {cell.kernel: cell for cell in cells.BY_DESC.values()}
_NAME = re.compile(rf"({'|'.join(_CELLS)})-(\d+)x(\d+)x(\d+)x(\d+)")

# How often a measured operator runs, and the seconds after which no run is begun
_MOST_RUNS, _LEAST_RUNS, _SECONDS = 31, 3, 2.0

Sizes = dict[str, int]


def parsed(text: str) -> tuple[Cell, Sizes]:
    """An operator's cell and its T, B, I and H. Raises ValueError for what is not of the FORM."""
    found = _NAME.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is neither a .onnx file nor {FORM}")
    name, *sizes = found.groups()
    return _CELLS[name], dict(zip("TBIH", map(int, sizes)))


def described(cell: Cell, sizes: Sizes, type: str = "float32") -> Problem:
    """A forward operator with biases and all outputs, as a call of the numpy functions has them."""
    element = next(element for element in element_types.ALL if element.name == type)
    left_out = {"HiddenInitTensor", "CellMemInitTensor", "PeepholeTensor", "SequenceLengthsTensor"}
    tensors = tensor_descs(cell, element, sizes | {"D": 1}, [field for field in cell.tensors if field not in left_out])
    fused = activations.from_onnx(cell.name, cell.default_activations, [], [])
    forward = DML_RECURRENT_NETWORK_DIRECTION.FORWARD
    return from_desc(cell.desc(**tensors, ActivationDescs=fused, Direction=forward), element=element)


def explained(device: Device, problem: Problem, measure: bool = False) -> dict[str, Any]:
    """Explain one operator, as JSON can have it. measure: run it, by itself and on zeros."""
    compiled = device.compile_operator(Operator(problem))
    memory, plan = compiled.memory(), compiled.plan
    assert plan.seconds is not None
    return {
        "cell": problem.cell.name, "T": problem.steps, "B": problem.batch, "I": problem.input_size, "H": problem.hidden,
        "type": problem.element.name, "direction": words.of_direction(problem),
        **_loop(plan), "submissions": plan.submissions, "estimated ms": plan.seconds * 1e3,
        "measured ms": _measured(device, problem, plan) if measure else None, "kernels": _kernels(plan),
        "memory": [{"what": what, "name": name, "bytes": size} for what, name, size in memory.rows], "bytes": memory.total,
    }


def _loop(plan: Plan) -> dict[str, Any]:
    assert plan.tiling
    loop, projection = plan.tiling.loop, plan.tiling.projection
    return {"schedule": loop.schedule, "meeting": loop.meeting, "parts": loop.parts, "rows": loop.rows,
            "steps of a dispatch": loop.chunk_steps, "steps of a projection": projection and projection.chunk_steps}


def _measured(device: Device, problem: Problem, plan: Plan) -> dict[str, Any]:
    """Times of executions, without bringing tensors to the device and back."""
    with device.lock:
        run = Run(Trial(device.gpu, problem), plan)
        run.execute()
        samples: list[float] = []
        end = time.perf_counter() + _SECONDS
        while len(samples) < _LEAST_RUNS or (len(samples) < _MOST_RUNS and time.perf_counter() < end):
            begin = time.perf_counter()
            run.execute()
            samples.append((time.perf_counter() - begin) * 1e3)
    return {"runs": len(samples), "median": statistics.median(samples), "min": min(samples), "max": max(samples),
            "gave up": run.timeouts}


def _kernels(plan: Plan) -> list[dict[str, Any]]:
    """A row for each, with how often it is dispatched and its first dispatch's workgroups."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for when, dispatches in (("packing", plan.initialize), ("execution", plan.execute), ("fallback", plan.fallback)):
        for dispatch in dispatches:
            row = rows.setdefault((when, dispatch.kernel), {
                "when": when, "kernel": dispatch.kernel, "dispatches": 0, "workgroups": "x".join(map(str, dispatch.groups)),
                "invocations": dispatch.constants["WORKGROUP"]})
            row["dispatches"] += 1
    return list(rows.values())


def text(found: Mapping[str, Any]) -> str:
    """What `explained` returned, for people."""
    facts = ("T", "B", "I", "H")
    of_loop = ("schedule", "meeting", "parts", "rows", "steps of a dispatch", "steps of a projection", "submissions")
    rows = [(name, found[name]) for name in of_loop if found[name] is not None]
    rows.append(("estimated time", f"{found['estimated ms']:.3f} ms"))
    if measured := found["measured ms"]:
        times = "{median:.3f} ms, the median of {runs} runs of {min:.3f} to {max:.3f} ms"
        rows.append(("measured time", times.format(**measured)))
        if measured["gave up"]:
            rows.append(("gave up", f"{measured['gave up']} times: the fallback ran then"))
    return "\n\n".join([
        f"{', '.join(f'{name} {found[name]}' for name in facts)}, {found['type']}, {found['direction']}",
        tabulate(rows, tablefmt="plain"),
        tabulate(found["kernels"], headers="keys"),
        tabulate([*found["memory"], {"what": "total", "name": "", "bytes": found["bytes"]}], headers="keys"),
    ])
