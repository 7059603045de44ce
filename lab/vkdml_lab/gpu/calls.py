"""Counts a warm call's submissions, waits, copies, barriers and new objects, with a GPU's driver but without the GPU.

    python -m vkdml_lab.gpu.calls [--drivers DIR] [GPU ...]

A warm call is one after the first few. The Vulkan layer of lab/vkdml_lab/faults/layer.c counts these things. vkdml works as on
that GPU, but nothing is computed. The exit code is 1 if a call exceeds its bounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import numpy as np
from tabulate import tabulate

from vkdml_lab.faults.layer import NONE, Layer, build
from vkdml_lab.gpu.compiler import as_of_a_real_one
from vkdml_lab.gpu.drivers import FETCHED, Driver, driver
from vkdml_lab.gpu.gpus import DESKTOP, GPUS, Gpu
from vkdml_lab.internals import devices

CHECKED = ("rx7900xtx", "rtx3090", "arc-a770", "tgl")  # three discrete GPUs, and one that shares the host's memory
STEPS, HIDDEN, LAYERS = 100, 256, 3
_WAITS = ("vkWaitForFences", "vkQueueWaitIdle")

Call = Callable[[], object]
Counts = Mapping[str, int]


def _random(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).uniform(-0.1, 0.1, sizes).astype(np.float32)


def _layer() -> Call:
    import vkdml
    layer = vkdml.GRU(_random(1, 3 * HIDDEN, HIDDEN), _random(1, 3 * HIDDEN, HIDDEN), linear_before_reset=True)
    return lambda: layer(X)


def _module() -> Call:
    import torch

    import vkdml.torch
    module, x = vkdml.torch.convert(torch.nn.LSTM(HIDDEN, HIDDEN).eval()), torch.from_numpy(X)
    return torch.inference_mode()(lambda: module(x))


def _training() -> Call:
    import torch

    import vkdml.torch
    module = vkdml.torch.convert(torch.nn.LSTM(1024, 1024), training="device")
    return lambda: module(torch.ones(25, 64, 1024))[0].sum().backward()


def _model(graph: str, weights: Mapping[str, np.ndarray]) -> object:
    from onnx import numpy_helper, parser
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def _stack() -> Call:
    from vkdml.onnx import InferenceSession
    nodes = "".join(f"y{place} = LSTM <hidden_size = {HIDDEN}> (x{place}, w{place}, r{place})"
                    f"x{place + 1} = Squeeze (y{place}, one) " for place in range(LAYERS))
    session = InferenceSession(_model(
        f"stack (float[T, B, {HIDDEN}] x0) => (float[T, B, {HIDDEN}] x{LAYERS}) {{"
        f"one = Constant <value_ints = [1]> () {nodes} }}",
        {f"{name}{place}": _random(1, 4 * HIDDEN, HIDDEN) for name in "wr" for place in range(LAYERS)}))
    return lambda: session.run(None, {"x0": X})


def _stream() -> Call:
    from vkdml.onnx import InferenceSession
    state = f"float[1, 1, {HIDDEN}]"
    session = InferenceSession(_model(
        f"stream (float[T, 1, {HIDDEN}] x, {state} h) => (float[T, 1, 1, {HIDDEN}] y, {state} last) {{"
        f"y, last = GRU <hidden_size = {HIDDEN}, linear_before_reset = 1> (x, w, r, , , h) }}",
        {name: _random(1, 3 * HIDDEN, HIDDEN) for name in "wr"}))
    stream, x = session.stream({"last": "h"}), _random(1, 1, HIDDEN)
    return lambda: stream.step({"x": x})


def _download() -> Call:
    import vkdml
    buffer = vkdml.Device().upload(_random(STEPS, HIDDEN))
    return lambda: buffer.download((STEPS, HIDDEN))


CALLS: dict[str, Callable[[], Call]] = {"layer": _layer, "module": _module, "training": _training, "stack": _stack,
                                        "stream": _stream, "download": _download}
HERE = [name for name in CALLS if name not in ("module", "training") or find_spec("torch")]  # PyTorch is optional
X = _random(STEPS, 1, HIDDEN)

# Bounds of a call. A GPU that shares the host's memory copies nothing
_STATE, _SLACK = 4 * HIDDEN, 64  # bytes of a step's x, y or state; of the flags by which plans give up
BOUNDS = {
    "layer": {"barriers": 12, "copies": 4, "copied bytes": (2 * STEPS + 1) * _STATE + _SLACK},  # x, y and the last h
    "module": {"barriers": 14, "copies": 5, "copied bytes": (2 * STEPS + 2) * _STATE + _SLACK},  # and the last c
    "training": {"submissions": 4, "waits": 4, "barriers": 94, "copies": 17, "copied bytes": 122 * 10**6,
                 "vkBeginCommandBuffer": 1},  # a submission of its own copies the matrix of parameters, once a step
    "stack": {"barriers": 24, "copies": 2 + LAYERS, "copied bytes": 2 * STEPS * _STATE + _SLACK},
    "stream": {"barriers": 8, "copies": 2, "copied bytes": _STATE + _SLACK},  # y, which is the state; no small inputs
    "download": {"barriers": 2, "copies": 1, "copied bytes": STEPS * _STATE, "vkBeginCommandBuffer": 1},
}
_OF_ALL = {"submissions": 1, "waits": 1}
_MAKES = "vkCreate", "vkAllocate", "vkMap", "vkBind", "vkBegin"


def breaches(gpu: Gpu, call: str, counts: Counts) -> list[str]:
    """Return a sentence for each count that exceeds its bound. call: its name in CALLS. counts: of a warm call."""
    shared = {"copies": 0, "copied bytes": 0} if gpu.kind != DESKTOP else {}
    bounds = _OF_ALL | {name: 0 for name in counts if name.startswith(_MAKES)} | BOUNDS[call] | shared
    return [f"{gpu.name}, {call}: {counts[what]} {what}, at most {bound} are allowed"
            for what, bound in bounds.items() if counts.get(what, 0) > bound]


def counted(name: str, calls: list[str], drivers: Path = FETCHED) -> dict[str, Counts]:
    """Count what warm calls do on the GPU `name`, by call. calls: names in CALLS. Raises RuntimeError if the process fails."""
    with tempfile.TemporaryDirectory() as temporary:
        of_gpu: Driver = driver(GPUS[name], drivers, Path(temporary))
        # Nothing is computed, so findings must not be kept for real devices
        environment = of_gpu.environment | build(Path(temporary)) | {"XDG_CACHE_HOME": temporary, "VKDML_TUNING": "off"}
        child = subprocess.run([*of_gpu.python(), "-m", "vkdml_lab.gpu.calls", "--inside", temporary, name, *calls],
                               env=environment, capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(f"{name}: the process ended with {child.returncode}: {child.stderr[-2000:]}")
    return dict(json.loads(child.stdout.splitlines()[-1]))


def _count(layer: Layer, call: Call) -> Counts:
    """Make five equal calls, and return what the last one does with the driver. The layer must be loaded in this process."""
    for _ in range(4):
        call()
    layer.arm(NONE)
    call()
    counts = layer.counts()
    return {"submissions": counts["vkQueueSubmit"], "waits": sum(counts[name] for name in _WAITS), **layer.submitted(),
            **{name: count for name, count in counts.items() if count and name not in ("vkQueueSubmit", *_WAITS)}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.gpu.calls", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what lab/vkdml_lab/gpu/fetch made (.gpu-drivers)")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # the layer's folder, in the process with it
    parser.add_argument("names", nargs="*", metavar="GPU", help=f"of {', '.join(GPUS)}; by default {', '.join(CHECKED)}")
    arguments = parser.parse_args()
    if arguments.inside:
        gpu, *calls = arguments.names
        infos = [as_of_a_real_one(GPUS[gpu], info) for info in devices.enumerate_devices()]
        with patch.object(devices, "enumerate_devices", lambda: infos):
            print(json.dumps({name: _count(Layer(arguments.inside), CALLS[name]()) for name in calls}))
        return 0
    found = {name: counted(name, HERE, arguments.drivers) for name in arguments.names or CHECKED}
    rows = [(name, call, counts) for name, calls in found.items() for call, counts in calls.items()]
    print(tabulate([{"GPU": name, "call": call, **counts} for name, call, counts in rows], headers="keys"))
    broken = [text for name, call, counts in rows for text in breaches(GPUS[name], call, counts)]
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
