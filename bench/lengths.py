"""Measures what a new sequence length costs in an InferenceSession: a bidirectional LSTM with H = 256.

    python -m bench.lengths [T ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np
from onnx import numpy_helper, parser
from tabulate import tabulate

from vkdml.onnx import InferenceSession

LENGTHS = [20, 33, 29, 41, 50, 64, 25, 100, 17, 90, 70, 60]
SHAPES = {"W": (2, 1024, 512), "R": (2, 1024, 256), "B": (2, 2048)}


def main(arguments: Sequence[str]) -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        lstm (float[T, 1, 512] x) => (float[T, 2, 1, 256] y) {
            y = LSTM <hidden_size = 256, direction = "bidirectional"> (x, W, R, B) }""")
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        array = rng.standard_normal(shape, np.float32) * np.float32(0.05)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    session = InferenceSession(model)
    rows = []
    for length in map(int, arguments) if arguments else LENGTHS:
        feed = {"x": rng.standard_normal((length, 1, 512), np.float32)}
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            session.run(None, feed)
            seconds.append(time.perf_counter() - started)
        rows.append([length, *(second * 1e3 for second in seconds)])
    print(tabulate(rows, ["T", "first run, ms", "second run, ms"], "github", floatfmt=".1f"))


if __name__ == "__main__":
    main(sys.argv[1:])
