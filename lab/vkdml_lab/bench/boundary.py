"""What a step of an ONNX model between onnxruntime and the device takes, in microseconds:

    python -m bench.boundary                        of this tree; with PYTHONPATH=TREE/src of another one that was built

Eight GRUs of 4 units with another node behind each, T = B = 1: the time of a run, and what is left of it without the driver's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from onnx import numpy_helper, parser

from vkdml.onnx import InferenceSession

NODES, UNITS, RUNS, ROUNDS = 8, 4, 200, 7


def model() -> bytes:
    nodes = "".join(f"p{i}, q{i} = GRU <hidden_size={UNITS}> (a{i}, W, R) s{i} = Squeeze (p{i}, one) a{i + 1} = Erf (s{i}) "
                    for i in range(NODES))
    parsed = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> boundary (float[T,B,{UNITS}] x) => (float[T,B,{UNITS}] a{NODES}) {{'
        f"one = Constant <value_ints=[1]> () a0 = Erf (x) {nodes}}}")
    weights = np.random.default_rng(0).uniform(-0.5, 0.5, (1, 3 * UNITS, UNITS)).astype(np.float32)
    parsed.graph.initializer.extend(numpy_helper.from_array(weights, name) for name in ("W", "R"))
    return bytes(parsed.SerializeToString())


def counted(function: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            taken[0] += time.perf_counter() - begin
    return call


def main() -> None:
    session, feed = InferenceSession(model()), {"x": np.zeros((1, 1, UNITS), np.float32)}
    steps, elsewhere, driver = 2 * NODES + 1, [0.0], type(session.device.gpu.driver)
    driver.run = counted(driver.run, elsewhere)  # type: ignore[method-assign]
    found = []
    for _ in range(1 + ROUNDS):
        elsewhere[0], begin = 0.0, time.perf_counter()
        for _ in range(RUNS):
            session.run(None, feed)
        seconds = time.perf_counter() - begin
        found.append(tuple(1e6 * one / RUNS / steps for one in (seconds, seconds - elsewhere[0])))
    whole, host = (median(times) for times in zip(*found[1:]))
    print(f"{steps} steps: {whole:.1f} us each, {host:.1f} of them the host's")


if __name__ == "__main__":
    main()
