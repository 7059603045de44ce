"""Time per call of GRUs, beside ONNX Runtime's CPU provider in the same run.

    python -m bench [--repeats N] [--json FILE]

Calls go from numpy to numpy, weights packed before, the two libraries taking turns; medians. GFLOP/s count the products
only: 2 T B 3H (I + H). Validation layers are kept off.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ["VK_LAYER_PATH"] = tempfile.mkdtemp()  # kp turns an installed validation layer on by itself; none is in here

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from tabulate import tabulate

import vkdml

# T, B, I, H
SHAPES = [(1, 1, 64, 64), (100, 1, 128, 128), (100, 1, 256, 256), (50, 32, 256, 256), (100, 1, 512, 512), (50, 64, 512, 512),
          (25, 64, 1024, 1024), (1000, 1, 128, 128)]


def make_arrays(shape: tuple[int, int, int, int]) -> dict[str, np.ndarray]:
    t, b, i, h = shape
    rng = np.random.default_rng(0)
    sizes = {"X": (t, b, i), "W": (1, 3 * h, i), "R": (1, 3 * h, h), "B": (1, 6 * h)}
    return {name: (rng.standard_normal(size) * h**-0.5).astype(np.float32) for name, size in sizes.items()}


def ort_session(arrays: dict[str, np.ndarray], linear_before_reset: int) -> onnxruntime.InferenceSession:
    """A model of one GRU whose weights are initializers, as exported models have them."""
    weights = [helper.make_tensor(name, TensorProto.FLOAT, arrays[name].shape, arrays[name].tobytes(), raw=True)
               for name in "WRB"]
    node = helper.make_node("GRU", ["X", "W", "R", "B"], ["Y", "Y_h"], hidden_size=arrays["R"].shape[2],
                            linear_before_reset=linear_before_reset)
    graph = helper.make_graph([node], "gru", [helper.make_tensor_value_info("X", TensorProto.FLOAT, arrays["X"].shape)],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("Y", "Y_h")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure(shape: tuple[int, int, int, int], linear_before_reset: int, repeats: int, device: vkdml.Device
            ) -> dict[str, object]:
    arrays = make_arrays(shape)
    session = ort_session(arrays, linear_before_reset)

    def ours() -> tuple[np.ndarray, np.ndarray]:
        return vkdml.gru(arrays["X"], arrays["W"], arrays["R"], arrays["B"], linear_before_reset=bool(linear_before_reset),
                         device=device)

    def ort() -> list[np.ndarray]:
        return session.run(None, {"X": arrays["X"]})

    first = seconds(ours)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(ours(), ort()))
    calls = max(1, int(0.02 / seconds(ours)))  # of short ones, several make a sample
    pairs = [(seconds(lambda: [ours() for _ in range(calls)]) / calls, seconds(lambda: [ort() for _ in range(calls)]) / calls)
             for _ in range(repeats)]
    t, b, i, h = shape
    time_ours, time_ort = (median(column) for column in zip(*pairs))
    return {"T,B,I,H": ",".join(map(str, shape)), "lbr": linear_before_reset, "ms": time_ours * 1e3,
            "spread": (max(p[0] for p in pairs) - min(p[0] for p in pairs)) / time_ours,
            "GFLOP/s": 2 * t * b * 3 * h * (i + h) / time_ours / 1e9, "first call s": first, "ORT CPU ms": time_ort * 1e3,
            "ours/ORT": median(a / b for a, b in pairs), "largest difference": difference}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Time per call of GRUs, beside ONNX Runtime's CPU.")
    parser.add_argument("--repeats", type=int, default=9, help="samples of each, paired (9)")
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    arguments = parser.parse_args()
    device = vkdml.Device()
    info = device.info
    print(f"{info.name}, {info.driver} {info.driver_version}; ONNX Runtime {onnxruntime.__version__} CPU; "
          f"{os.cpu_count()} cores; validation layers off\n", flush=True)
    rows = [measure(shape, lbr, arguments.repeats, device) for shape in SHAPES for lbr in (1, 0)]
    print(tabulate(rows, headers="keys", tablefmt="github",
                   floatfmt=("", "", ".3f", ".0%", ".1f", ".2f", ".3f", ".2f", ".0e")))
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": vars(info), "results": rows}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
