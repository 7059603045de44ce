"""Measures the host's work in warm calls (not the first): Python's instructions and time, with a GPU's driver but no GPU.

    python -m bench.host [--gpu GPU] [--pairs N] [--drivers DIR] [TREE ...]

The host plans and works as for that GPU, but the device takes no time. Each TREE is a built checkout of vkdml, this one by
default. N processes of each tree run in turns with those of the others. Each times 10 calls 200 times; the least mean counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

from vkdml_lab.bench.processes import ROOT
from vkdml_lab.gpu.calls import CALLS, HIDDEN, STEPS, Call, _model, _random
from vkdml_lab.gpu.compiler import as_of_a_real_one
from vkdml_lab.gpu.drivers import FETCHED, driver
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.internals import devices
from vkdml_lab.reports import table


def _gru() -> Any:
    import vkdml
    return vkdml.GRU(*_weights(), linear_before_reset=True)


def _weights() -> list[Any]:
    return [_random(1, 3 * HIDDEN, HIDDEN) for _ in range(2)]


def _step() -> Call:
    stream, x = _gru().stream(), _random(1, HIDDEN)
    return lambda: stream.step(x)


def _one() -> Call:
    layer, x = _gru(), _random(1, 1, HIDDEN)
    return lambda: layer(x)


def _function(is_immutable: bool = False) -> Call:
    import vkdml
    weights, x = _weights(), _random(STEPS, 1, HIDDEN)
    if is_immutable:
        weights = [np.ndarray(array.shape, array.dtype, array.tobytes()) for array in weights]
    return lambda: vkdml.gru(x, *weights, linear_before_reset=True)


def _session() -> Call:
    from vkdml.onnx import InferenceSession
    session: Any = InferenceSession(_model(
        f"session (float[T, 1, {HIDDEN}] x) => (float[T, 1, 1, {HIDDEN}] y) {{"
        f"y = GRU <hidden_size = {HIDDEN}, linear_before_reset = 1> (x, w, r) }}", dict(zip("wr", _weights()))))
    x = _random(1, 1, HIDDEN)
    return lambda: session.run(None, {"x": x})


WAYS: dict[str, Callable[[], Call]] = {
    "a stream's step": _step, "layer, 1 step": _one, f"layer, {STEPS} steps": CALLS["layer"],
    f"function, {STEPS} steps": _function, "function, weights in bytes": partial(_function, True),
    f"converted LSTM, {STEPS} steps": CALLS["module"],
    "ONNX session, 1 step": _session, "ONNX stream's step": CALLS["stream"]}


def _instructions(call: Call) -> int:
    """Make a call, and return how many instructions of Python's bytecode it runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def _measured(make: Callable[[], Call]) -> tuple[int, float]:
    call = make()
    for _ in range(20):
        call()
    return _instructions(call), min(timeit.repeat(call, number=10, repeat=200)) / 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.host", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", choices=GPUS, default="rx7900xtx")
    parser.add_argument("--pairs", type=int, default=1, help="processes of each tree (1)")
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what lab/vkdml_lab/gpu/fetch made (.gpu-drivers)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # in the process with the driver
    parser.add_argument("trees", nargs="*", metavar="TREE", type=Path, default=[ROOT], help="folders of the repository, built")
    chosen = parser.parse_args()
    if chosen.inside:
        infos = [as_of_a_real_one(GPUS[chosen.gpu], info) for info in devices.enumerate_devices()]
        with patch.object(devices, "enumerate_devices", lambda: infos):
            print(json.dumps({name: _measured(make) for name, make in WAYS.items()}))
        return
    found: list[tuple[Path, dict[str, tuple[int, float]]]] = []
    with tempfile.TemporaryDirectory() as folder:
        of_gpu = driver(GPUS[chosen.gpu], chosen.drivers, Path(folder))
        environment = of_gpu.environment | {"XDG_CACHE_HOME": folder, "VKDML_TUNING": "off"}
        for tree in chosen.trees * chosen.pairs:
            path = os.pathsep.join([str(tree.resolve() / "src"), environment.get("PYTHONPATH", "")])
            child = subprocess.run([*of_gpu.python(), "-m", "vkdml_lab.bench.host", "--inside", "--gpu", chosen.gpu],
                                   env=environment | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True)
            found.append((tree, json.loads(child.stdout.splitlines()[-1])))
    rows = [{"call": name, **{f"{tree}: {what}": value for tree in chosen.trees for what, value in (
        ("instructions", min(one[name][0] for of, one in found if of == tree)),
        ("us", round(min(one[name][1] for of, one in found if of == tree) * 1e6, 1)))}} for name in WAYS]
    print(table(rows))


if __name__ == "__main__":
    main()
