"""The command `vkdml explain`"""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import explain
from ..runtime.operator import Device
from ..spec.cells import Cell
from .arguments import add_device, add_json, count, existing_file, print_json


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("what", type=_model_or_operator, metavar="WHAT", help=f"a .onnx file, or {explain.FORM}")
    command.add_argument("-T", type=count, metavar="N", help="time steps of a model's operators (1)")
    command.add_argument("-B", type=count, metavar="N", help="batch rows of a model's operators (1)")
    command.add_argument("--type", choices=explain.TYPES, help="of an operator's tensors (float32)")
    command.add_argument("--direction", choices=explain.DIRECTIONS, help="of an operator (forward)")
    command.add_argument("--lengths", action="store_true", help="an operator's rows have lengths of their own")
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
    of_model = {"-T": chosen.T, "-B": chosen.B}
    of_operator = {"--type": chosen.type, "--direction": chosen.direction, "--lengths": chosen.lengths}
    is_model = isinstance(chosen.what, Path)
    wrong = [name for name, value in (of_operator if is_model else of_model).items() if value]
    if wrong:
        chosen.refuse(f"{wrong[0]}: {'a model says that' if is_model else 'is in the name of an operator'}")
    device = Device(chosen.device)
    if is_model:
        operators = explain.of_model(chosen.what, device, chosen.T or 1, chosen.B or 1)
    else:
        cell, sizes = chosen.what
        problem = explain.described(cell, sizes, chosen.type or "float32", chosen.direction or "forward", chosen.lengths)
        operators = {problem.cell.name: explain.explained(device, problem)}
    if chosen.json:
        print_json({"device": device.info.name, "memory_limit": device.memory_limit, "operators": operators})
        return 0
    print(f"{device.info.name}: at most {device.memory_limit} bytes for buffers")
    for name, found in operators.items():
        print(f"\n{name}: {explain.told(found) if found else 'its weights are known only when it runs'}")
    return 0
