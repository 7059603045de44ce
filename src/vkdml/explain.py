"""What a device would do for an operator, or for an ONNX model's recurrent nodes: the plan, and the memory that it takes.

Nothing is compiled or run for it, but where plans are timed first (`VKDML_TUNING`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tabulate import tabulate

from .planning.plan import Plan
from .runtime.operator import Device, Operator
from .spec import activations, cells, element_types
from .spec.arguments import tensor_descs
from .spec.cells import Cell
from .spec.descs import DML_RECURRENT_NETWORK_DIRECTION
from .spec.problem import Problem, from_desc

FORM = "CELL-TxBxIxH, such as gru-100x1x256x256"
TYPES = [element.name for element in element_types.ALL]
DIRECTIONS = {"forward": DML_RECURRENT_NETWORK_DIRECTION.FORWARD, "reverse": DML_RECURRENT_NETWORK_DIRECTION.BACKWARD,
              "bidirectional": DML_RECURRENT_NETWORK_DIRECTION.BIDIRECTIONAL}
_CELLS = {cell.kernel: cell for cell in cells.BY_DESC.values()}
_NAME = re.compile(rf"({'|'.join(_CELLS)})-(\d+)x(\d+)x(\d+)x(\d+)")

Sizes = dict[str, int]


def parsed(text: str) -> tuple[Cell, Sizes]:
    """An operator's cell and its T, B, I and H. Raises ValueError for what is not of the FORM."""
    found = _NAME.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is neither a .onnx file nor {FORM}")
    name, *sizes = found.groups()
    return _CELLS[name], dict(zip("TBIH", map(int, sizes)))


def described(cell: Cell, sizes: Sizes, type: str = "float32", direction: str = "forward", lengths: bool = False) -> Problem:
    """An operator with biases and all outputs, as a call of the numpy functions has them."""
    element = next(element for element in element_types.ALL if element.name == type)
    d = 2 if direction == "bidirectional" else 1
    left_out = {"HiddenInitTensor", "CellMemInitTensor", "PeepholeTensor", "" if lengths else "SequenceLengthsTensor"}
    tensors = tensor_descs(cell, element, sizes | {"D": d}, [field for field in cell.tensors if field not in left_out])
    fused = activations.from_onnx(cell.name, cell.default_activations * d, [], [])
    return from_desc(cell.desc(**tensors, ActivationDescs=fused, Direction=DIRECTIONS[direction]), element=element)


def of_model(path: Path, device: Device, t: int, b: int) -> dict[str, dict[str, Any] | None]:
    """Of each recurrent node, by name, for T time steps and B batch rows; None where its weights are known only in a run."""
    from .faces.onnx import InferenceSession

    problems = InferenceSession(path, device=device).problems(t, b)
    return {name: explained(device, problem) if problem else None for name, problem in problems.items()}


def explained(device: Device, problem: Problem) -> dict[str, Any]:
    """Of one operator, as JSON can have it."""
    compiled = device.compile_operator(Operator(problem))
    memory, plan = compiled.memory(), compiled.plan
    return {
        "cell": problem.cell.name, "T": problem.steps, "B": problem.batch, "I": problem.input_size, "H": problem.hidden,
        "type": problem.element.name, "direction": "bidirectional" if problem.directions == 2 else (
            "reverse" if problem.reverse[0] else "forward"),
        **_loop(plan), "submissions": plan.submissions, "kernels": _kernels(plan),
        "memory": [{"what": what, "name": name, "bytes": size} for what, name, size in memory.rows], "bytes": memory.total,
    }


def _loop(plan: Plan) -> dict[str, Any]:
    assert plan.tiling
    loop, projection = plan.tiling.loop, plan.tiling.projection
    return {"schedule": loop.schedule, "meeting": loop.meeting, "parts": loop.parts, "rows": loop.rows,
            "steps of a dispatch": loop.chunk_steps, "steps of a projection": projection and projection.chunk_steps}


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


def told(found: Mapping[str, Any]) -> str:
    """What `explained` returned, to be read."""
    facts = ("T", "B", "I", "H")
    of_loop = ("schedule", "meeting", "parts", "rows", "steps of a dispatch", "steps of a projection", "submissions")
    return "\n\n".join([
        f"{', '.join(f'{name} {found[name]}' for name in facts)}, {found['type']}, {found['direction']}",
        tabulate([(name, found[name]) for name in of_loop if found[name] is not None], tablefmt="plain"),
        tabulate(found["kernels"], headers="keys"),
        tabulate([*found["memory"], {"what": "total", "name": "", "bytes": found["bytes"]}], headers="keys"),
    ])
