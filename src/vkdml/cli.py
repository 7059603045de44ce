"""The command `vkdml`: devices, ONNX models, DxDispatch's models, plans, a self-test, benchmarks, conformance and a demo.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate
from tqdm import tqdm

from . import __version__, demo, explain
from .errors import InvalidArgumentError, VkdmlError
from .faces import dxdispatch
from .planning.device_info import DeviceInfo
from .planning.profiles import profile
from .runtime import choices, vulkan
from .runtime.device import has_host_memory, kp_description, select_device
from .runtime.files import read_npy
from .runtime.operator import Device
from .spec.cells import Cell

# The modules of the commands that work only in a source tree. They parse their own arguments.
_ELSEWHERE = {"bench": "bench.__main__", "conformance": "tools.conformance"}

# DxDispatch's names of its commands, by the type of their results
_COMMANDS = {dxdispatch.Dispatched: "dispatch", dxdispatch.Printed: "print", dxdispatch.Written: "writeFile"}

_MOST_DIGITS = 18  # of a number on the command line

# The absolute and relative tolerance of a comparison with onnxruntime, by the output's type
_TOLERANCES = {"float32": (1e-5, 1e-4), "float64": (1e-5, 1e-4), "float16": (2e-3, 2e-3)}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in _ELSEWHERE:
            return _elsewhere(given[0], given[1:])
        chosen = _parser().parse_args(given or ["--help"])
        result: int = chosen.command(chosen)
        return result
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        sys.stdout = None
        return 1
    except KeyboardInterrupt:
        return 130
    except (VkdmlError, OSError, UnicodeError) as error:
        print(f"vkdml: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vkdml", description="DirectML's recurrent operators on a Vulkan device.")
    parser.add_argument("--version", action="version", version=f"vkdml {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    devices = commands.add_parser("devices", help="list the Vulkan devices and their limits")
    devices.set_defaults(command=_devices)

    run = commands.add_parser("run", help="run an ONNX model, its recurrent nodes on a Vulkan device")
    run.add_argument("model", type=_file, help="a .onnx file")
    run.add_argument("--input", action="append", default=[], type=_input, metavar="NAME=FILE.npy", help="once for each input")
    run.add_argument("--output-dir", type=Path, metavar="DIR", help="a folder for the outputs, each as NAME.npy")
    run.add_argument("--compare", choices=["onnxruntime"], help="run it in onnxruntime alone too, and fail if results differ")
    run.set_defaults(command=_run, refuse=run.error)

    dispatch = commands.add_parser("dispatch", help="run a DxDispatch model of recurrent and activation operators")
    dispatch.add_argument("model", type=_file, help="a .json file")
    dispatch.add_argument("-i", "--iterations", type=_count, default=1, metavar="N", help="runs of each dispatch (1)")
    dispatch.add_argument("--max-bytes", type=_count, default=dxdispatch.MAX_BYTES, metavar="N",
                          help=f"how large all resources and tensors may be together ({dxdispatch.MAX_BYTES})")
    dispatch.set_defaults(command=_dispatch)

    plan = commands.add_parser("explain", help="say how an operator, or a model's, would run, and the memory that it takes")
    plan.add_argument("what", type=_model_or_operator, metavar="WHAT", help=f"a .onnx file, or {explain.FORM}")
    plan.add_argument("-T", type=_count, metavar="N", help="time steps of a model's operators (1)")
    plan.add_argument("-B", type=_count, metavar="N", help="batch rows of a model's operators (1)")
    plan.add_argument("--type", choices=explain.TYPES, help="of an operator's tensors (float32)")
    plan.add_argument("--direction", choices=explain.DIRECTIONS, help="of an operator (forward)")
    plan.add_argument("--lengths", action="store_true", help="an operator's rows have lengths of their own")
    plan.set_defaults(command=_explain, refuse=plan.error)

    words = commands.add_parser("demo", help="words to phonemes, with a trained model")
    words.add_argument("words", nargs="*", default=demo.WORDS, metavar="WORD", help="letters a to z; by default, a few words")
    words.set_defaults(command=_demo)

    for command in (run, dispatch):
        command.add_argument("--allow-outside", action="store_true", help="the model may name files outside of its folder")
    test = commands.add_parser("selftest", help="run each kernel that a device may be given, and check its results")
    test.set_defaults(command=_selftest)

    for command in (run, dispatch, plan, words, test):
        command.add_argument("--device", help="an index or a part of a name; see `vkdml devices`")
    for command in (devices, run, dispatch, plan, words, test):
        command.add_argument("--json", action="store_true", help="print JSON")
    for name, what in (("bench", "compare vkdml's times with other libraries'; only in a source tree"),
                       ("conformance", "test every Vulkan device and write a report; only in a source tree")):
        commands.add_parser(name, help=what)
    return parser


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no file {text!r}")
    return path


def _model_or_operator(text: str) -> Path | tuple[Cell, dict[str, int]]:
    if text.endswith(".onnx"):
        return _file(text)
    try:
        return explain.parsed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _input(text: str) -> tuple[str, np.ndarray]:
    splits = [(text[:index], text[index + 1:]) for index, letter in enumerate(text) if letter == "="]
    if not splits:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    name, path = next((split for split in splits if Path(split[1]).is_file()), splits[0])  # name and path may contain "=", too
    try:
        return name, read_npy(_file(path))
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{path} is no .npy file: {error}") from None


def _elsewhere(command: str, arguments: Sequence[str]) -> int:
    root = Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").exists():
        print(f"vkdml {command}: works only in a source tree of vkdml; run `make {command}` there", file=sys.stderr)
        return 1
    sys.path.insert(0, str(root))
    try:
        module = importlib.import_module(_ELSEWHERE[command])
    except ImportError as error:
        print(f"vkdml {command}: {error}; `make setup-{command}` installs what it needs", file=sys.stderr)
        return 1
    result: int = module.main(arguments)
    return result


def _print_json(data: Any) -> None:
    print(json.dumps(_finite(data), indent=1))


def _finite(data: Any) -> Any:
    """The data with infinities and NaN as strings, because JSON has neither. They are spelled as in DxDispatch's models."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def _devices(chosen: argparse.Namespace) -> int:
    infos = vulkan.enumerate_devices()
    default = select_device(None)
    rows = [{**asdict(info), "is_default": info == default} for info in infos]
    if chosen.json:
        _print_json(rows)
        return 0
    columns = {"index": "", "name": "name", "type": "type", "driver": "driver", "driver_version": "version",
               "api_version": "Vulkan", "units": "units", "subgroup": "subgroup", "max_workgroup_invocations": "workgroup",
               "max_shared_memory": "shared memory", "max_storage_buffer_range": "largest tensor", "copies": "copies"}
    shown = [{**asdict(info), "units": _units(info), "subgroup": _subgroup(info),
              "copies": "no" if has_host_memory(info) else "yes"} for info in infos]
    table = [["*" if info == default else "", *(row[column] for column in columns)] for info, row in zip(infos, shown)]
    print(tabulate(table, ["", *columns.values()]))
    print("* is the default; VKDML_DEVICE chooses another. Memory is in bytes. copies: whether tensors are copied to it.\n"
          "units: a processor's cores, or what a GPU's driver calls compute units, SMs or cores (?: it does not say).")
    if any(profile(info).tuned for info in infos):
        print(f"What was measured on GPUs is kept in {choices.folder()} ({choices.count()} files; VKDML_TUNING=off).")
    print(kp_description())
    return 0


def _units(info: DeviceInfo) -> str:
    return str(info.cores if info.is_cpu else info.compute_units or "?")


def _subgroup(info: DeviceInfo) -> str:
    """Its invocations, or the fewest and the most."""
    if info.min_subgroup_size == info.max_subgroup_size:
        return str(info.subgroup_size)
    return f"{info.min_subgroup_size} to {info.max_subgroup_size}"


def _run(chosen: argparse.Namespace) -> int:
    from .faces.onnx import InferenceSession

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
        _print_json({"device": session.device.info.name, "seconds": seconds, "outputs": rows})
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

    from .faces.onnx.steps import of_onnxruntime

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


def _dispatch(chosen: argparse.Namespace) -> int:
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
        _print_json({"device": device.info.name, "results": [
            {"type": _COMMANDS[type(result)], **asdict(result)} for result in results]})
    return 0


def _explain(chosen: argparse.Namespace) -> int:
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
        _print_json({"device": device.info.name, "memory_limit": device.memory_limit, "operators": operators})
        return 0
    print(f"{device.info.name}: at most {device.memory_limit} bytes for buffers")
    for name, found in operators.items():
        print(f"\n{name}: {explain.told(found) if found else 'its weights are known only when it runs'}")
    return 0


def _demo(chosen: argparse.Namespace) -> int:
    device = Device(chosen.device)
    with tqdm(total=3, delay=2, disable=None, leave=False) as bar:
        told = demo.say(chosen.words, device, bar)
    (_print_json if chosen.json else demo.tell)(told)
    return 0


def _selftest(chosen: argparse.Namespace) -> int:
    device = Device(chosen.device)
    name, driver = device.info.name, f"{device.info.driver} {device.info.driver_version}"
    found = list(tqdm(device.selftest_outcomes(), delay=2, disable=None, leave=False))
    rows = [{**asdict(outcome), "kernels": ", ".join(outcome.kernels)} for outcome in found]
    if chosen.json:
        _print_json({"device": name, "driver": driver, "results": rows})
    else:
        print(f"{name} ({driver})")
        print(tabulate([{**row, "wrong": row["wrong"] or "-"} for row in rows], headers="keys", floatfmt=".2f"))
    return int(any(outcome.wrong for outcome in found))
