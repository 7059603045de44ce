"""Times calls of random T and B in an InferenceSession, beside onnxruntime on the CPU.

    python -m bench.shapes [--shapes N] [--sentences N] [--models NAME ...] [--json FILE]

There are two models: a two-layer bidirectional LSTM(64) for random T from 1 to 199 and B from 1 to 39; and nine bidirectional
GRUs in a chain, as in text to speech, for sentences of random lengths with B = 1. The first pass calls a model once for each
drawn T and B, and the second pass repeats these calls. "over steady" is the time of the second pass divided by the sum
of each call's best time in several repetitions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, numpy_helper, parser
from tqdm import tqdm

import vkdml
from vkdml.onnx import InferenceSession
from vkdml_lab.internals import open_device
from vkdml_lab.reports import as_json, table

INPUTS = 32
STEADY_CALLS = 3
LONGEST, LARGEST_BATCH = 199, 39
CHECKED = 20  # one call of so many is compared with onnxruntime

Shape = tuple[int, int]  # T and B
Run = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Model:
    """A chain of bidirectional layers of one cell. shapes: a function that draws so many pairs of T and B."""

    cell: str
    gates: int
    layers: int
    hidden: int
    shapes: Callable[[np.random.Generator, int], list[Shape]]

    def proto(self) -> ModelProto:
        """Return the model in ONNX's form, with random weights."""
        rng = np.random.default_rng(0)
        lines, weights, inputs = [], {}, INPUTS
        for layer in range(self.layers):
            attributes = f'<hidden_size = {self.hidden}, direction = "bidirectional">'
            lines.append(f"""h{layer} = {self.cell} {attributes} (x{layer}, W{layer}, R{layer})
                t{layer} = Transpose <perm = [0, 2, 1, 3]> (h{layer})
                x{layer + 1} = Reshape (t{layer}, flat)""")
            for name, columns in (("W", inputs), ("R", self.hidden)):
                weights[f"{name}{layer}"] = rng.standard_normal((2, self.gates * self.hidden, columns)) * columns**-0.5
            inputs = 2 * self.hidden
        model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
            stack (float[T, B, {INPUTS}] x0) => (float[T, B, {inputs}] x{self.layers}) {{
                flat = Constant <value_ints = [0, 0, -1]> ()
                {chr(10).join(lines)} }}""")
        model.graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), name)
                                       for name, array in weights.items())
        return model


def _random_shapes(rng: np.random.Generator, count: int) -> list[Shape]:
    return [(int(rng.integers(1, LONGEST + 1)), int(rng.integers(1, LARGEST_BATCH + 1))) for _ in range(count)]


def _sentences(rng: np.random.Generator, count: int) -> list[Shape]:
    return [(int(length), 1) for length in np.clip(rng.lognormal(3.7, 0.6, count), 3, LONGEST)]


MODELS = {"2 LSTM(64)": Model("LSTM", 4, 2, 64, _random_shapes), "9 GRU(128)": Model("GRU", 3, 9, 128, _sentences)}


def timed(run: Run, x: np.ndarray) -> tuple[float, np.ndarray]:
    started = time.perf_counter()
    y = run(x)
    return time.perf_counter() - started, y


def measure(model: Model, count: int, device: vkdml.Device, progress: Callable[[], object]) -> dict[str, dict[str, Any]]:
    """Time `count` random shapes. Returns each library's row of the table. Raises AssertionError if their results differ."""
    proto = model.proto()
    ours = InferenceSession(proto, device=device)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    runs: dict[str, Run] = {"vkdml": lambda x: ours.run(None, {"x0": x})[0],
                            "onnxruntime-cpu": lambda x: theirs.run(None, {"x0": x})[0]}
    rng = np.random.default_rng(1)
    shapes = model.shapes(rng, count)
    data = rng.standard_normal((LONGEST, LARGEST_BATCH, INPUTS), np.float32)
    inputs = [np.ascontiguousarray(data[:t, :b]) for t, b in shapes]
    rows: dict[str, dict[str, Any]] = {}
    results: dict[str, list[np.ndarray]] = {}
    for name, run in runs.items():  # one library after the other, as onnxruntime's threads spin for a while after each call
        made = [_pipelines(device)]
        seconds: dict[str, list[float]] = {"first": [], "second": [], "steady": []}
        results[name] = []
        for number, x in enumerate(inputs):
            took, y = timed(run, x)
            seconds["first"].append(took)
            made.append(_pipelines(device))
            results[name] += [y] * (number % CHECKED == 0)
            progress()
        for x in inputs:
            seconds["second"].append(timed(run, x)[0])
        for x in inputs:
            seconds["steady"].append(min(timed(run, x)[0] for _ in range(STEADY_CALLS)))
            progress()
        rows[name] = row(seconds, made[-1] - made[0], made[-1] - made[len(made) // 2])
    for ours_y, theirs_y in zip(*results.values(), strict=True):
        np.testing.assert_allclose(ours_y, theirs_y, atol=1e-4)
    return rows


def _pipelines(device: vkdml.Device) -> int:
    return open_device(device.info).pipelines_made


def row(seconds: dict[str, list[float]], pipelines: int, late: int) -> dict[str, Any]:
    """Return a row of the table. seconds: of calls, by pass. pipelines: made in the first pass; late: in its second half."""
    first = np.array(seconds["first"]) * 1e3
    p50, p90, p99 = np.quantile(first, (0.5, 0.9, 0.99)).tolist()
    return {"p50 ms": p50, "p90 ms": p90, "p99 ms": p99, "max ms": float(np.max(first)), "p99/p50": p99 / p50,
            "over steady": sum(seconds["second"]) / sum(seconds["steady"]), "pipelines": pipelines, "in the second half": late}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.shapes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", type=int, default=1000, help="random shapes of the LSTM (1000)")
    parser.add_argument("--sentences", type=int, default=40, help="lengths of the GRUs (40)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="models to run (all)")
    parser.add_argument("--json", type=Path, help="write the numbers to a file too")
    chosen = parser.parse_args(arguments)
    counts = dict(zip(MODELS, (chosen.shapes, chosen.sentences)))
    device = vkdml.Device()
    print(f"{device.info.name}, {device.info.driver} {device.info.driver_version}\n")
    rows = []
    for name in chosen.models:
        with tqdm(total=4 * counts[name], desc=name, disable=None) as bar:
            measured = measure(MODELS[name], counts[name], device, bar.update)
        rows += [{"model": name, "shapes": counts[name], "library": library, **values} for library, values in measured.items()]
    print(table(rows, {name: ".2f" for name in rows[0] if name.endswith("ms") or name in ("p99/p50", "over steady")}))
    if chosen.json:
        chosen.json.write_text(as_json({"device": vars(device.info), "rows": rows}))


if __name__ == "__main__":
    main()
