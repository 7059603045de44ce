"""The command `vkdml explain`: says how a device would run operators: the plan, the memory, the expected time.

It compiles and runs kernels only for --measure, and where plans are timed first (`VKDML_TUNING`).
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ..engine.trust.trial import Run, Trial, forward_problem
from ..errors import printable
from ..faces.directml.compiled_operator import Operator
from ..faces.directml.device import Device
from ..operators import cells, element_types
from ..operators.cells import Cell
from ..operators.problem import Problem
from ..planning.plan import Plan
from .common import add_common, add_inputs, count, existing_file, feed, onnxruntime_errors, print_json

_FORM = "CELL-TxBxIxH, such as gru-100x1x256x256"
_TYPES = [element.name for element in element_types.ALL]
_CELLS = {cell.kernel: cell for cell in cells.BY_DESC.values()}
_LEFT_OUT = {"HiddenInitTensor", "CellMemInitTensor", "PeepholeTensor", "SequenceLengthsTensor"}  # as calls of `vkdml.gru` do
_NAME = re.compile(rf"({'|'.join(_CELLS)})-([1-9]\d*)x([1-9]\d*)x([1-9]\d*)x([1-9]\d*)")

# --measure runs an operator at most so often, and begins no further run after so many seconds, but runs it so often at least
_MOST_RUNS, _SECONDS, _LEAST_RUNS = 31, 2.0, 3


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("what", type=_model_or_operator, metavar="WHAT", help=f"a .onnx file, or {_FORM}")
    command.add_argument("-T", type=count, metavar="N", help="time steps of a model's operators (the model's own, or 1)")
    command.add_argument("-B", type=count, metavar="N", help="batch rows of a model's operators (the model's own, or 1)")
    add_inputs(command, "run a model once on these, for the sizes that its operators get")
    command.add_argument("--type", choices=_TYPES, help="element type of the operator's tensors (float32)")
    command.add_argument("--measure", action="store_true", help="also run each operator alone, and print its time")
    add_common(command)
    command.set_defaults(refuse=command.error)


def _model_or_operator(text: str) -> Path | tuple[Cell, dict[str, int]]:
    """Parse WHAT: a model's file, or an operator's cell and its T, B, I and H."""
    if text.endswith(".onnx"):
        return existing_file(text)
    found = _NAME.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a .onnx file nor {_FORM}")
    name, *sizes = found.groups()
    return _CELLS[name], dict(zip("TBIH", map(int, sizes)))


def run(chosen: argparse.Namespace) -> int:
    is_model = isinstance(chosen.what, Path)
    _check_options(chosen, is_model)
    device = Device(chosen.device)
    report: dict[str, Any] = {"device": device.info.name, "memory_limit": device.memory_limit}
    if is_model:
        assignment, problems = _of_model(chosen, device)
        report |= {"nodes": len(assignment.nodes), "assignment": assignment.groups(), "refused": assignment.refused}
    else:
        cell, sizes = chosen.what
        element = next(element for element in element_types.ALL if element.name == (chosen.type or "float32"))
        fields = [field for field in cell.tensors if field not in _LEFT_OUT]
        problems = {cell.name: [forward_problem(cell, element, sizes | {"D": 1}, fields, {})]}
    report["operators"] = {name: [_explained(device, problem, chosen.measure) for problem in of_node]
                           for name, of_node in problems.items()}
    if chosen.json:
        print_json(report)
    else:
        _print(report, "it was not run" if chosen.input else "its weights are known only when it runs: give --input")
        rows = [row for of_node in report["operators"].values() for row in of_node] if is_model and not chosen.input else []
        for name in (name for name in "TB" if not vars(chosen)[name] and any(row[name] == 1 for row in rows)):
            print(f"\n{name} is 1 where the model leaves it open: -{name} sets it.")
    return 0


def _check_options(chosen: argparse.Namespace, is_model: bool) -> None:
    of_model = {"-T": chosen.T, "-B": chosen.B, "--input": chosen.input}
    for name in (name for name, value in ({"--type": chosen.type} if is_model else of_model).items() if value):
        chosen.refuse(f"{name}: {'a model says that' if is_model else 'only for a model; an operator has it in its name'}")
    if chosen.input and (chosen.T or chosen.B):
        chosen.refuse(f"{'-T' if chosen.T else '-B'}: the arrays of --input say that")


def _of_model(chosen: argparse.Namespace, device: Device) -> tuple[Any, Mapping[str, Sequence[Problem]]]:
    """Load a model. Returns its assignment, and the problems of each recurrent node, by the node's name."""
    from ..faces.onnx import InferenceSession

    with onnxruntime_errors():
        session = InferenceSession(chosen.what, device=device)
        if chosen.input:
            session.run(None, feed(chosen.input, session, chosen.refuse))
        return session.assignment(), session.explain(chosen.T, chosen.B)


def _print(report: Mapping[str, Any], unknown: str) -> None:
    """Print a report. unknown: why a node may have no rows."""
    print(f"{report['device']}: at most {report['memory_limit']} bytes for buffers")
    if "assignment" in report:
        rows = [(group["runs_on"], group["nodes"],
                 ", ".join(f"{operator} {number}" for operator, number in group["operators"].items()))
                for group in report["assignment"]]
        print("\n" + printable(tabulate(rows, ["runs on", "nodes", "operators"], maxcolwidths=[None, None, 80])))
    print("".join(f"\nnot on the device: {line}\n" for line in report.get("refused", ())), end="")
    for name, found in report["operators"].items():
        for of_sizes in found:
            print(f"\n{name}: {_text(of_sizes)}")
        if not found:
            print(f"\n{name}: {unknown}")


def _explained(device: Device, problem: Problem, measure: bool) -> dict[str, Any]:
    """Explain one operator in a dictionary for JSON. measure: also run it, alone and on zeros."""
    compiled = device.compile_operator(Operator(problem))
    memory, plan = compiled.memory(), compiled.plan
    assert plan.seconds is not None
    assert plan.tiling
    loop, projection = plan.tiling.loop, plan.tiling.projection
    return {
        "cell": problem.cell.name, "T": problem.steps, "B": problem.batch, "I": problem.input_size, "H": problem.hidden,
        "type": problem.element.name, "direction": problem.direction,
        "schedule": loop.schedule, "parts": loop.parts, "rows": loop.rows,
        "steps of a dispatch": loop.chunk_steps, "steps of a projection": projection and projection.chunk_steps,
        "submissions": plan.submissions, "estimated ms": plan.seconds * 1e3,
        "measured ms": _measured(device, problem, plan) if measure else None, "kernels": _kernels(plan),
        "memory": [{"what": what, "name": name, "bytes": size} for what, name, size in memory.rows], "bytes": memory.total,
    }


def _measured(device: Device, problem: Problem, plan: Plan) -> dict[str, Any]:
    """Time executions of a plan in milliseconds, without transfers of tensors to the device and back."""
    with device.lock:
        run = Run(Trial(device.gpu, problem), plan)
        run.execute()
        samples: list[float] = []
        end = time.perf_counter() + _SECONDS
        while len(samples) < _LEAST_RUNS or (len(samples) < _MOST_RUNS and time.perf_counter() < end):
            samples.append(run.execute() * 1e3)
    return {"runs": len(samples), "median": statistics.median(samples), "min": min(samples), "max": max(samples),
            "gave up": run.timeouts}


def _kernels(plan: Plan) -> list[dict[str, Any]]:
    """Make a row for each kernel of a plan. "workgroups" and "invocations" are those of its first dispatch."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for when, dispatches in (("packing", plan.initialize), ("execution", plan.execute), ("fallback", plan.fallback)):
        for dispatch in dispatches:
            row = rows.setdefault((when, dispatch.kernel), {
                "when": when, "kernel": dispatch.kernel, "dispatches": 0, "workgroups": "x".join(map(str, dispatch.groups)),
                "invocations": dispatch.constants["WORKGROUP"]})
            row["dispatches"] += 1
    return list(rows.values())


def _text(found: Mapping[str, Any]) -> str:
    """Format the dictionary that `_explained` returns, for people."""
    of_loop = ("schedule", "parts", "rows", "steps of a dispatch", "steps of a projection", "submissions")
    rows = [(name, found[name]) for name in of_loop if found[name] is not None]
    rows.append(("estimated time", f"{found['estimated ms']:.3f} ms"))
    if measured := found["measured ms"]:
        times = "{median:.3f} ms, the median of {runs} runs of {min:.3f} to {max:.3f} ms"
        rows.append(("measured time", times.format(**measured)))
        if measured["gave up"]:
            rows.append(("gave up", f"{measured['gave up']} times: the fallback ran then"))
    return "\n\n".join([
        f"{', '.join(f'{name} {found[name]}' for name in 'TBIH')}, {found['type']}, {found['direction']}",
        tabulate(rows, tablefmt="plain"),
        tabulate(found["kernels"], headers="keys"),
        tabulate([*found["memory"], {"what": "total", "name": "", "bytes": found["bytes"]}], headers="keys"),
    ])
