"""The command `vkdml dispatch`"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tqdm import tqdm

from vkdml import Device, InvalidArgumentError
from vkdml_lab import dxdispatch
from vkdml_lab.internals import add_common, count, existing_file, print_json

# DxDispatch's names of its commands, by the type of their results
_COMMANDS = {dxdispatch.Dispatched: "dispatch", dxdispatch.Printed: "print", dxdispatch.Written: "writeFile"}


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=existing_file, help="a .json file")
    command.add_argument("-i", "--iterations", type=count, default=1, metavar="N", help="runs of each dispatch (1)")
    command.add_argument("--max-bytes", type=count, default=dxdispatch.MAX_BYTES, metavar="N",
                         help=f"how large all resources and tensors may be together ({dxdispatch.MAX_BYTES})")
    command.add_argument("--allow-outside", action="store_true", help="let the model name files outside of its folder")
    add_common(command)


def run(chosen: argparse.Namespace) -> int:
    if chosen.model.suffix in (".onnx", ".ort"):
        raise InvalidArgumentError("dispatch", "model", chosen.model, "a DxDispatch model, .json; `vkdml run` runs ONNX models")
    model = dxdispatch.load(chosen.model, allow_outside=chosen.allow_outside, max_bytes=chosen.max_bytes)
    device = Device(chosen.device)
    if not chosen.json:
        print(f"Running on '{device.info.name}'")
    with tqdm(total=len(model.commands), delay=2, disable=None, leave=False) as bar:
        def show(result: dxdispatch.Result) -> None:
            bar.update()
            if not chosen.json:
                bar.write(str(result))

        results = model.run(device, iterations=chosen.iterations, progress=show)
    if chosen.json:
        print_json({"device": device.info.name, "results": [
            {"type": _COMMANDS[type(result)], **asdict(result)} for result in results]})
    return 0
