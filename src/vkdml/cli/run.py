"""The command `vkdml run`"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate
from tqdm import tqdm

from ..errors import InvalidArgumentError
from ..runtime.files import read_npy
from .arguments import add_allow_outside, add_device, add_json, existing_file, print_json

# The absolute and relative tolerance of a comparison with onnxruntime, by the output's type
_TOLERANCES = {"float32": (1e-5, 1e-4), "float64": (1e-5, 1e-4), "float16": (2e-3, 2e-3)}


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=existing_file, help="a .onnx file")
    command.add_argument("--input", action="append", default=[], type=_input, metavar="NAME=FILE.npy",
                         help="once for each input")
    command.add_argument("--output-dir", type=Path, metavar="DIR", help="a folder for the outputs, each as NAME.npy")
    command.add_argument("--compare", choices=["onnxruntime"],
                         help="run it in onnxruntime alone too, and fail if results differ")
    add_allow_outside(command)
    add_device(command)
    add_json(command)
    command.set_defaults(refuse=command.error)


def _input(text: str) -> tuple[str, np.ndarray]:
    splits = [(text[:index], text[index + 1:]) for index, letter in enumerate(text) if letter == "="]
    if not splits:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    name, path = next((split for split in splits if Path(split[1]).is_file()), splits[0])  # name and path may contain "=", too
    try:
        return name, read_npy(existing_file(path))
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{path} is no .npy file: {error}") from None


def run(chosen: argparse.Namespace) -> int:
    from ..faces.onnx import InferenceSession

    with tqdm(total=3 if chosen.compare else 2, delay=2, disable=None, leave=False) as bar:
        started = time.perf_counter()
        session = InferenceSession(chosen.model, device=chosen.device, allow_outside=chosen.allow_outside)
        loaded = time.perf_counter()
        bar.update()
        feed = _feed(chosen, session.get_inputs())
        results = dict(zip((output.name for output in session.get_outputs()), session.run(None, feed)))
        seconds = {"load": loaded - started, "run": time.perf_counter() - loaded}
        bar.update()
        if chosen.output_dir or chosen.compare:
            _expect_arrays(results)
        files = _save(results, chosen.output_dir) if chosen.output_dir else {}
        expected = _onnxruntime_alone(chosen.model, feed) if chosen.compare else {}
    rows = [_output_row(name, value, files.get(name), expected.get(name)) for name, value in results.items()]
    if chosen.json:
        print_json({"device": session.device.info.name, "seconds": seconds, "outputs": rows})
    else:
        print(f"{session.device.info.name}: loaded in {seconds['load']:.3f} s, first run in {seconds['run']:.3f} s")
        print(tabulate(rows, headers="keys", floatfmt=".2e"))
    return 0 if all(row.get("agrees", True) for row in rows) else 1


def _feed(chosen: argparse.Namespace, inputs: Sequence[Any]) -> dict[str, np.ndarray]:
    feed = dict(chosen.input)
    wanted = {value.name: f"{value.name} {value.type} {value.shape}" for value in inputs}
    if feed.keys() != wanted.keys() or len(chosen.input) != len(wanted):
        given = ", ".join(name for name, _ in chosen.input) or "none"
        chosen.refuse(f"--input: given {given}; the model needs each of these once: " + ("; ".join(wanted.values()) or "none"))
    return feed


def _onnxruntime_alone(model: Path, feed: dict[str, np.ndarray]) -> dict[str, Any]:
    import onnxruntime

    from ..faces.onnx.steps import of_onnxruntime

    session = of_onnxruntime(onnxruntime.InferenceSession, model, None, ["CPUExecutionProvider"])
    return dict(zip((output.name for output in session.get_outputs()), of_onnxruntime(session.run, None, feed)))


def _expect_arrays(results: dict[str, Any]) -> None:
    for name, value in results.items():
        if not isinstance(value, np.ndarray):
            raise InvalidArgumentError("run", f"output {name}", type(value).__name__, "an array, to be saved or compared")


def _save(results: dict[str, np.ndarray], folder: Path) -> dict[str, str]:
    """Write each output to NAME.npy, with "_" for characters that a file's name cannot have. Returns the paths by output."""
    names = {name: re.sub(r"[/\0]", "_", name) for name in results}
    for name in names:
        if list(names.values()).count(names[name]) > 1:
            raise InvalidArgumentError("run", f"output {name}", f"another for the file {names[name]}.npy", "a name of its own")
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{file}.npy" for name, file in names.items()}
    for name, path in paths.items():
        array = results[name]
        np.save(path, array.astype(np.float32) if array.dtype.name == "bfloat16" else array)  # .npy has no bfloat16
    return {name: str(path) for name, path in paths.items()}


def _output_row(name: str, value: Any, file: str | None, expected: Any) -> dict[str, Any]:
    array = value if isinstance(value, np.ndarray) else np.array(value, object)
    row: dict[str, Any] = {"output": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if file is not None:
        row["file"] = file
    if expected is not None:
        row |= _compared(array, expected)
    return row


def _compared(array: np.ndarray, expected: np.ndarray) -> dict[str, Any]:
    if array.shape != expected.shape or array.dtype.name not in _TOLERANCES:
        return {"largest_difference": None, "agrees": bool(np.array_equal(array, expected))}
    atol, rtol = _TOLERANCES[array.dtype.name]
    differs = (array != expected) & ~(np.isnan(array) & np.isnan(expected))
    differences = np.abs(array[differs].astype(np.float64) - expected[differs].astype(np.float64))
    return {"largest_difference": float(differences.max(initial=0)),
            "agrees": bool(np.allclose(array.astype(np.float64), expected.astype(np.float64), rtol, atol, equal_nan=True))}
