"""The command `vkdml run`: runs an ONNX model, times it, and compares it with onnxruntime."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from ..errors import VkdmlError, printable
from ..faces.directml.device import Device
from . import common

# Absolute and relative tolerances of outputs, by type. Outputs of other types must be equal
_TOLERANCES = {"float64": (1e-10, 1e-9), "float32": (1e-5, 1e-4), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}

_FLOOR = 1 / 16  # errors in ULP use the ULP of at least this share of the output's largest number


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=common.existing_file, help="a .onnx file")
    common.add_inputs(command, "what to run it on")
    command.add_argument("--output-dir", type=Path, metavar="DIR",
                         help="a folder for the outputs, each as NAME.npy, .npz for a sequence of tensors, .json for maps")
    command.add_argument("-i", "--iterations", type=common.count, metavar="N", help="timed runs after the first one")
    command.add_argument("--warmup", type=common.count_from_0, metavar="N", help="untimed runs before these (1)")
    command.add_argument("--compare", choices=["onnxruntime"],
                         help="also run the model in onnxruntime alone, and fail if results differ; prints both times")
    common.add_common(command)
    command.set_defaults(refuse=command.error)


def run(chosen: argparse.Namespace) -> int:
    from ..faces.onnx import InferenceSession

    if chosen.warmup is not None and not chosen.iterations:
        chosen.refuse("--warmup: only with --iterations")
    device = Device(chosen.device)
    times: dict[str, Any] = {}
    with common.progress(total=3 if chosen.compare else 2) as bar:
        begin = time.perf_counter()
        with common.onnxruntime_errors():
            session = InferenceSession(chosen.model, device=device)
        load = time.perf_counter() - begin
        bar.update()
        given = common.feed(chosen.input, session, chosen.refuse)
        with common.onnxruntime_errors():
            values, times["vkdml"] = _timed(lambda: session.run(None, given), chosen)
        names = [output.name for output in session.get_outputs()]
        bar.update()
        files = common.save(dict(zip(names, values)), chosen.output_dir) if chosen.output_dir else {}
        if chosen.compare:
            expected, times["onnxruntime"] = _timed(_onnxruntime_alone(chosen.model, given), chosen)
            wide = _in_float32(chosen, given) or [None] * len(names)
    rows: list[dict[str, Any]] = [{"output": name, **_described(value)} for name, value in zip(names, values)]
    if files:
        rows = [row | {"file": files[row["output"]]} for row in rows]
    if chosen.compare:
        types = {problem.element.name for problems in session.explain().values() for problem in problems}
        rows = [row | compared(value, wanted, types, in_float32)
                for row, value, wanted, in_float32 in zip(rows, values, expected, wide)]
    if chosen.json:
        common.print_json({"device": device.info.name, "nodes": len(session.assignment().nodes),
                           "nodes_on_device": len(session.assignment().on("device")), "load_seconds": load,
                           "milliseconds": times, "outputs": rows})
    else:
        print(f"{session.assignment().headline}; loaded in {load:.3f} s\n")
        print(tabulate([{"milliseconds": name, **row} for name, row in times.items()], headers="keys", floatfmt=".3f"))
        print("\n" + printable(tabulate(rows, headers="keys", floatfmt=".2e")))
        if chosen.compare:
            print("\n" + _verdict(device.info.name, **times))
    return 0 if all(row.get("agrees", True) for row in rows) else 1


def _verdict(device: str, vkdml: dict[str, float], onnxruntime: dict[str, float]) -> str:
    """Say in a sentence whether vkdml was faster here. vkdml, onnxruntime: what `_timed` returns."""
    if "median" not in vkdml:
        return "First runs compile: --iterations 20 says whether vkdml is faster or slower than onnxruntime's CPU here."
    ours, theirs = vkdml["median"], onnxruntime["median"]
    how = f"faster than onnxruntime's CPU here, {theirs / ours:.2f} times" if ours <= theirs else (
        f"slower than onnxruntime's CPU here, {ours / theirs:.2f} times")
    return f"vkdml on {device} is {how}: {ours:.3g} ms beside {theirs:.3g} ms, medians of {vkdml['iterations']} runs."


def _timed(run: Callable[[], Sequence[Any]], chosen: argparse.Namespace) -> tuple[Sequence[Any], dict[str, float]]:
    """Run and time. Returns the first run's results, and milliseconds: "first", which compiles, and those of --iterations."""
    results, first = _elapsed(run)
    times: dict[str, float] = {"first": first}
    if chosen.iterations:
        for _ in range(1 if chosen.warmup is None else chosen.warmup):
            run()
        samples = [_elapsed(run)[1] for _ in range(chosen.iterations)]
        times |= {"iterations": len(samples), "min": min(samples), "median": statistics.median(samples), "max": max(samples)}
    return results, times


def _elapsed(run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], float]:
    begin = time.perf_counter()
    results = run()
    return results, (time.perf_counter() - begin) * 1e3


def _onnxruntime_alone(model: Path | bytes, given: dict[str, Any]) -> Callable[[], Sequence[Any]]:
    import onnxruntime

    def run() -> Sequence[Any]:
        with common.onnxruntime_errors("--compare: ", ". It cannot run this model alone: leave --compare out"):
            return session.run(None, given)

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # onnxruntime raises all worse errors anyway
    with common.onnxruntime_errors("--compare: ", ". It cannot run this model alone: leave --compare out"):
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    return run


def _in_float32(chosen: argparse.Namespace, given: dict[str, Any]) -> Sequence[Any] | None:
    """Run a model in onnxruntime with float32 instead of float16. None if it has no float16, or cannot run so."""
    import onnx

    model = onnx.load(chosen.model)
    if not widen(model):
        return None
    halves = {name for name, value in given.items() if isinstance(value, np.ndarray) and value.dtype == np.float16}
    try:
        return _onnxruntime_alone(model.SerializeToString(),
                                  given | {name: given[name].astype(np.float32) for name in halves})()
    except VkdmlError:
        return None


def widen(message: Any) -> bool:
    """Replace float16 by float32 in an ONNX model, or in a part of one. Returns whether there was any."""
    from onnx import AttributeProto, TensorProto, TypeProto, numpy_helper

    if isinstance(message, TensorProto) and message.data_type == TensorProto.FLOAT16:
        message.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(message).astype(np.float32), message.name))
        return True
    if isinstance(message, TypeProto.Tensor) and message.elem_type == TensorProto.FLOAT16:
        message.elem_type = TensorProto.FLOAT
        return True
    if isinstance(message, AttributeProto) and message.name in ("to", "dtype") and message.i == TensorProto.FLOAT16:
        message.i = TensorProto.FLOAT
        return True
    inner = [value for field, value in message.ListFields() if field.message_type is not None]
    found = [widen(part) for value in inner for part in ([value] if hasattr(value, "ListFields") else value)]
    return any(found)


def _described(value: Any) -> dict[str, Any]:
    """Describe a value by its type and shape. The shape of a list or map is its length."""
    if isinstance(value, np.ndarray):
        return {"type": str(value.dtype), "shape": list(value.shape)}
    return {"type": type(value).__name__, "shape": [len(value)] if isinstance(value, list | dict) else []}


def compared(value: Any, expected: Any, types: Iterable[str] = (), wide: Any = None) -> dict[str, Any]:
    """Compute the largest errors of an output, and whether it agrees with the expected one.

    types: names of other types that it was computed in; the coarsest one sets the tolerance. wide: the output of the same model
    in float32, for a model with float16. An output agrees, too, if it is no farther from wide than the expected one is, plus
    the tolerance. Sequences and maps agree if all their tensors or numbers do. Errors are None if there are no numbers to
    compare, or the shapes differ.
    """
    ours, theirs, without = common.leaves(value), common.leaves(expected), common.leaves(wide)
    is_alike = ours.keys() == theirs.keys()
    rows = [_of_array(ours[place], theirs[place], types, without.get(place)) for place in ours if is_alike]
    largest: list[float | None] = [float(np.max(column)) for column in zip(*(row for row, _ in rows if row))] or [None] * 3
    return {**dict(zip(("absolute", "relative", "ulp"), largest)), "agrees": is_alike and all(agrees for _, agrees in rows)}


def _of_array(array: np.ndarray, expected: np.ndarray, types: Iterable[str], wide: np.ndarray | None
              ) -> tuple[tuple[float, float, float] | None, bool]:
    """Compare two arrays. Returns the largest absolute error, relative error and error in ULP, and whether they agree."""
    name = array.dtype.name
    if array.shape != expected.shape or name != expected.dtype.name or name not in _TOLERANCES:
        return None, array.shape == expected.shape and bool(np.array_equal(array, expected))
    atol, rtol = np.max([_TOLERANCES[kind] for kind in (name, *types) if kind in _TOLERANCES], axis=0)
    ours, theirs = array.astype(np.float64), expected.astype(np.float64)
    differs = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
    with np.errstate(all="ignore"):
        size, differences = np.abs(theirs[differs]), np.abs(ours[differs] - theirs[differs])
        finite = np.abs(theirs[np.isfinite(theirs)])
        ulp = np.spacing(np.maximum(size, _FLOOR * finite.max(initial=0)).astype(expected.dtype)).astype(np.float64)
        errors = [differences, (differences / size)[size > 0], differences / ulp]
        largest = [float(error.max(initial=0)) for error in errors]
    agrees = bool(np.allclose(ours, theirs, rtol, atol, equal_nan=True))
    if not agrees and wide is not None and wide.shape == theirs.shape and wide.dtype.kind == "f":
        is_finite = np.isfinite(theirs) & np.isfinite(wide)
        own = np.abs(theirs - wide, where=is_finite, out=np.zeros_like(theirs)).max()
        agrees = bool(np.allclose(ours, np.where(is_finite, wide, theirs), rtol, atol + own, equal_nan=True))
    return (largest[0], largest[1], largest[2]), agrees
