"""Measures errors of vkdml, and of onnxruntime and PyTorch on the CPU: python -m bench.accuracy [--output DIR] [--quick]

All three compute with the same numbers in the measured type, and the reference in float64. Errors are in ULP (units in the last
place of the type, at the expected number). If the expected number is below FLOOR, the error is in ULP of FLOOR: hidden states
are sums and products of numbers up to 1, so that errors do not shrink with the result.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import onnxruntime
import torch
from tqdm import tqdm

matplotlib.use("agg")  # needs no screen
from matplotlib import pyplot as plt

import vkdml
import vkdml.pydirectml as dml
from vkdml import reference
from vkdml_lab.bench.adapters import torch_nn
from vkdml_lab.bench.nodes import Node
from vkdml_lab.internals import ACTIVATIONS, ELEMENT_TYPES, GRU, LSTM, RNN, Cell
from vkdml_lab.reports import document, table, write
from vkdml_lab.suite.recording import ulp
from vkdml_lab.suite.support import DTYPES

FLOOR = 2.0**-4
ROWS, SEEDS = 4, 2  # B, and number of problems of each size
MARKDOWN, PICTURE, DATA = "accuracy.md", "accuracy.png", "accuracy.json"
VKDML, ONNXRUNTIME, TORCH = "vkdml", "onnxruntime", "PyTorch"
LIBRARIES = (VKDML, ONNXRUNTIME, TORCH)

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Size:
    """The sizes of a problem. steps: T. hidden: both H and I."""

    steps: int
    hidden: int


# Ordered by T within each H
SIZES = [Size(1, 64), Size(10, 64), Size(100, 64), Size(1000, 64), Size(100, 8), Size(100, 256)]
QUICK_SIZES = [Size(1, 8), Size(4, 8)]
SUMS = (64, 256, 1024)  # H and I of single steps without an activation, which are sums of H + I terms and two biases


@dataclass(frozen=True)
class Row:
    """A problem's errors in ULP by library: the largest, and the root mean square (usual). None: the library lacks the type."""

    operator: str
    element: str
    steps: int
    hidden: int
    largest: Mapping[str, float | None]
    usual: Mapping[str, float | None]


def problem(cell: Cell, element: str, size: Size, seed: int) -> dict[str, np.ndarray]:
    """Draw a random problem. Returns arrays by vkdml's argument names. Inputs and sums are numbers of about 1."""
    rng, gates, hidden = np.random.default_rng(seed), len(cell.gates), size.hidden
    shapes = {"x": (size.steps, ROWS, hidden), **dict.fromkeys("wr", (1, gates * hidden, hidden)), "b": (1, 2 * gates * hidden)}
    scales = {"x": 1.0, "w": hidden**-0.5, "r": hidden**-0.5, "b": 0.3}
    return {name: (rng.standard_normal(shape) * scales[name]).astype(DTYPES[element]) for name, shape in shapes.items()}


def attributes(cell: Cell, activations: Sequence[str] | None) -> dict[str, Any]:
    """Return the operator's attributes by ONNX's names. A GRU's linear_before_reset is 1, as PyTorch has nothing else."""
    flags = {"linear_before_reset": 1} if cell is GRU else {}
    return flags | ({"activations": list(activations)} if activations else {})


def by_vkdml(cell: Cell, arrays: Arrays, activations: Sequence[str] | None) -> np.ndarray:
    result: np.ndarray = getattr(vkdml, cell.kernel)(**arrays, **attributes(cell, activations))[0]
    return result


def node(cell: Cell, arrays: Arrays, activations: Sequence[str] | None) -> Node:
    parameters = {"activation_alpha": [1.0], "activation_beta": [0.0]} if activations else {}
    return Node(cell.name, attributes(cell, activations) | parameters, {name.upper(): array for name, array in arrays.items()})


def by_onnxruntime(cell: Cell, arrays: Arrays, activations: Sequence[str] | None) -> np.ndarray | None:
    if arrays["x"].dtype not in (np.float32, np.float16):
        return None
    made = node(cell, arrays, activations)
    result: np.ndarray = onnxruntime.InferenceSession(made.model(), providers=["CPUExecutionProvider"]).run(None, made.feeds)[0]
    return result


def by_torch(cell: Cell, arrays: Arrays, activations: Sequence[str] | None) -> np.ndarray:
    x = torch_nn.tensor(arrays["x"])
    if activations:
        w, b = torch_nn.tensor(arrays["w"][0]), torch_nn.tensor(arrays["b"][0]).chunk(2)
        y = torch.nn.functional.linear(x, w, b[0] + b[1])
    else:
        y, *_ = torch_nn.caller(torch_nn.make_module(node(cell, arrays, None)), None)(x, ())
    return y.double().numpy()[:, None]


_RUN: dict[str, Callable[[Cell, Arrays, Sequence[str] | None], np.ndarray | None]] = {
    VKDML: by_vkdml, ONNXRUNTIME: by_onnxruntime, TORCH: by_torch}


def errors(result: np.ndarray, expected: np.ndarray, element: str) -> np.ndarray:
    """Return the absolute error of each number in `result`, in ULP of the type `element`."""
    floored = np.maximum(np.abs(expected), FLOOR)
    return np.abs(result.astype(np.float64) - expected) / ulp(floored, element)


def measure(cell: Cell, element: str, size: Size, operator: str = "", activations: Sequence[str] | None = None) -> Row:
    found: dict[str, list[np.ndarray]] = {name: [] for name in LIBRARIES}
    for seed in range(SEEDS):
        arrays = problem(cell, element, size, seed)
        expected = getattr(reference, cell.kernel)(**arrays, **attributes(cell, activations))[0]
        for name, run in _RUN.items():
            result = run(cell, arrays, activations)
            if result is not None:
                found[name].append(errors(result, expected, element))
    together = {name: np.stack(each) if each else None for name, each in found.items()}
    largest = {name: None if error is None else float(error.max()) for name, error in together.items()}
    usual = {name: None if error is None else float(np.sqrt(np.mean(error**2))) for name, error in together.items()}
    return Row(operator or cell.name, element, size.steps, size.hidden, largest, usual)


def all_rows(is_quick: bool) -> Iterator[Row]:
    for element in ELEMENT_TYPES:
        for cell in (GRU, LSTM, RNN):
            for size in QUICK_SIZES if is_quick else SIZES:
                yield measure(cell, element.name, size)
        for hidden in SUMS[:1] if is_quick else SUMS:
            yield measure(RNN, element.name, Size(1, hidden), "sum", ["Affine"])


def activation_errors() -> dict[str, float]:
    """Return each float32 activation's largest error in ULP, for inputs from -20 to 20 and DirectML's default parameters."""
    x = np.linspace(-20, 20, 100_001).astype(np.float32)
    found = {}
    for row in ACTIVATIONS.values():
        name = row.operator_type.name
        builder = dml.GraphBuilder(device := dml.Device())
        given = dml.input_tensor(builder, 0, dml.TensorDesc(dml.TensorDataType.FLOAT32, [x.size]))
        result = getattr(dml, name.lower())(given)
        computed = device.compute(builder.build(dml.ExecutionFlags.NONE, [result]), [dml.Binding(given, x)], [result])[0]
        a, b = [*(float(np.float32(getattr(row.desc(), field))) for field in row.fields), 0.0, 0.0][:2]
        expected = row.function(x.astype(np.float64), a, b)
        found[name.removeprefix("ACTIVATION_")] = float(errors(np.asarray(computed), expected, "float32").max())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("accuracy-report"), help="folder for the report (accuracy-report)")
    parser.add_argument("--quick", action="store_true", help="run a few small sizes, as a check")
    given = parser.parse_args(arguments)
    rows = list(tqdm(all_rows(given.quick), disable=None, unit="problem"))
    activations = activation_errors()
    write(given.output, {DATA: {"rows": [asdict(row) for row in rows], "activations": activations},
                         MARKDOWN: markdown(rows, activations)})
    draw(rows, given.output / PICTURE)
    print(f"report: {given.output / MARKDOWN}")
    return 0


def markdown(rows: Sequence[Row], activations: Mapping[str, float]) -> str:
    info = vkdml.Device().info
    described = [{"operator": row.operator, "type": row.element, "T": row.steps, "H": row.hidden,
                  **{name: _pair(row.largest[name], row.usual[name]) for name in LIBRARIES}} for row in rows]
    return document(
        "# Errors in ULP",
        f"`python -m bench.accuracy` on {info.name}, {info.driver} {info.driver_version}; onnxruntime {onnxruntime.__version__}"
        f" and PyTorch {torch.__version__} on the CPU. Largest error; root mean square. B = {ROWS}, I = H. A ULP is of the type"
        f" at the expected number or, if that is smaller, at {FLOOR:g}. *sum*: an RNN of one step without an activation.",
        table(described),
        "Activations in float32, from -20 to 20:",
        table(({"activation": name, "largest": error} for name, error in activations.items()), {"largest": ".2g"}),
        f"![the largest error against T]({PICTURE})")


def _pair(largest: float | None, usual: float | None) -> str:
    return "-" if largest is None or usual is None else f"{largest:.3g}; {usual:.2g}"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the largest errors against T into a file, with a panel for each type. H is the one with the most values of T."""
    hidden = max((row.hidden for row in rows), key=[row.hidden for row in rows if row.operator == "GRU"].count)
    figure, axes = plt.subplots(1, len(ELEMENT_TYPES), figsize=(14, 4), layout="constrained")
    for place, element in zip(axes, ELEMENT_TYPES):
        for operator, style in (("GRU", "-"), ("LSTM", "--"), ("RNN", ":")):
            wanted = (operator, element.name, hidden)
            chosen = [row for row in rows if (row.operator, row.element, row.hidden) == wanted]
            for name, color in zip(LIBRARIES, ("C0", "C1", "C2")):
                points = [(row.steps, row.largest[name]) for row in chosen if row.largest[name] is not None]
                if points:
                    place.loglog(*zip(*points), style, color=color, marker="o", markersize=3, label=f"{name}, {operator}")
        place.set(title=element.name, xlabel="T", ylabel="largest error, ULP")
        place.grid(True, which="both", alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.suptitle(f"H = {hidden}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    raise SystemExit(main())
