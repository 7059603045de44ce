"""The command `vkdml explain`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from .. import explain
from ..faces.directml.device import Device
from ..operators.cells import Cell
from ..operators.problem import Problem
from .argument_types import add_allow_outside, add_device, add_json, count, existing_file, print_json
from .values import add_inputs, feed


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("what", type=_model_or_operator, metavar="WHAT", help=f"a .onnx file, or {explain.FORM}")
    command.add_argument("-T", type=count, metavar="N", help="time steps of a model's operators (the model's own, or 1)")
    command.add_argument("-B", type=count, metavar="N", help="batch rows of a model's operators (the model's own, or 1)")
    add_inputs(command, "run a model once on these, for the sizes that its operators get")
    command.add_argument("--type", choices=explain.TYPES, help="of an operator's tensors (float32)")
    command.add_argument("--measure", action="store_true", help="run each operator by itself, and say how long it takes")
    add_allow_outside(command)
    add_device(command)
    add_json(command)
    command.set_defaults(refuse=command.error)


def _model_or_operator(text: str) -> Path | tuple[Cell, dict[str, int]]:
    if text.endswith(".onnx"):
        return existing_file(text)
    try:
        return explain.parsed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(chosen: argparse.Namespace) -> int:
    is_model = isinstance(chosen.what, Path)
    _check_options(chosen, is_model)
    device = Device(chosen.device)
    report: dict[str, Any] = {"device": device.info.name, "memory_limit": device.memory_limit}
    if is_model:
        assignment, problems = _of_model(chosen, device)
        report |= {"nodes": len(assignment.nodes), "assignment": assignment.groups()}
    else:
        cell, sizes = chosen.what
        problem = explain.described(cell, sizes, chosen.type or "float32")
        problems = {problem.cell.name: [problem]}
    report["operators"] = {name: [explain.explained(device, problem, chosen.measure) for problem in of_node]
                           for name, of_node in problems.items()}
    if chosen.json:
        print_json(report)
    else:
        _tell(report, "it was not run" if chosen.input else "its weights are known only when it runs: give --input")
    return 0


def _check_options(chosen: argparse.Namespace, is_model: bool) -> None:
    of_model = {"-T": chosen.T, "-B": chosen.B, "--input": chosen.input, "--allow-outside": chosen.allow_outside}
    for name in (name for name, value in ({"--type": chosen.type} if is_model else of_model).items() if value):
        chosen.refuse(f"{name}: {'a model says that' if is_model else 'only for a model; an operator has it in its name'}")
    if chosen.input and (chosen.T or chosen.B):
        chosen.refuse(f"{'-T' if chosen.T else '-B'}: the arrays of --input say that")


def _of_model(chosen: argparse.Namespace, device: Device) -> tuple[Any, Mapping[str, Sequence[Problem]]]:
    """The places of a model's nodes, and what its recurrent nodes compute, by name."""
    from ..faces.onnx import InferenceSession

    session = InferenceSession(chosen.what, device=device, allow_outside=chosen.allow_outside)
    if chosen.input:
        session.run(None, feed(chosen.input, session, chosen.refuse))
        return session.assignment(), session._problems_so_far()
    problems = session._problems(chosen.T, chosen.B)
    return session.assignment(), {name: [problem] if problem else [] for name, problem in problems.items()}


def _tell(report: Mapping[str, Any], unknown: str) -> None:
    """Print the report. unknown: why nothing is known of a node."""
    print(f"{report['device']}: at most {report['memory_limit']} bytes for buffers")
    if "assignment" in report:
        rows = [(group["runs_on"], group["piece"], group["nodes"],
                 ", ".join(f"{operator} {number}" for operator, number in group["operators"].items()))
                for group in report["assignment"]]
        print("\n" + tabulate(rows, ["runs on", "piece", "nodes", "operators"], maxcolwidths=[None, None, None, 80]))
    for name, found in report["operators"].items():
        for of_sizes in found:
            print(f"\n{name}: {explain.text(of_sizes)}")
        if not found:
            print(f"\n{name}: {unknown}")
