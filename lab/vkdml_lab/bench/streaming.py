"""Steps of a stream, one at a time: an LSTM with H = I, B = 1, its state kept from step to step.

    python -m bench.streaming [--steps N] [--hidden H] [--packings N] [--json FILE]

The same steps with a layer's stream, with DirectML's descriptors, with a stream of an ONNX session, and with onnxruntime on the
CPU. They take turns, a block of steps each. Then what it takes to pack weights that are bound at execution: GRUs whose weights
were written before each execution, and were not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from tqdm import tqdm

import vkdml
from vkdml.onnx import InferenceSession
from vkdml_lab.bench.adapters.ours import make_desc
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.models import OUTPUTS, STATE_INPUTS, make_model
from vkdml_lab.reports import as_json, table

BLOCK = 500
REST_SECONDS = 0.05  # onnxruntime's threads spin for a while after its last step, and would take cores from the next way
PACKED_HIDDEN = (256, 512)
STATES = {"OutputSingleTensor": "HiddenInitTensor", "OutputCellSingleTensor": "CellMemInitTensor"}
FIELDS = {"X": "InputTensor", "W": "WeightTensor", "R": "RecurrenceTensor", "B": "BiasTensor"}

Step = Callable[[np.ndarray], np.ndarray]


class ByHand:
    """An operator with a buffer for each tensor, and weights bound at execution. Two recordings in turns: the states that one
    writes are those that the other reads.
    """

    def __init__(self, device: vkdml.Device, case: Case) -> None:
        self._compiled = device.compile_operator(device.create_operator(make_desc(case, "float32")))
        self._device = device
        arrays = case.arrays()
        self.buffers = {field: device.upload(arrays[name]) for name, field in FIELDS.items()}
        self._y = self.buffers["OutputSequenceTensor"] = device.create_buffer(4 * case.batch * case.hidden)
        self._shape = (case.batch, case.hidden)
        zeros = np.zeros(case.state_shape, np.float32)
        states = [{field: device.upload(zeros) for field in STATES.values()} for _ in range(2)]
        self._recorders = [self._record(states[turn], states[1 - turn]) for turn in range(2)]

    def _record(self, read: dict[str, vkdml.Buffer], written: dict[str, vkdml.Buffer]) -> vkdml.CommandRecorder:
        bound = self.buffers | read | {output: written[field] for output, field in STATES.items()}
        table = self._device.create_binding_table(self._compiled)
        has = self._compiled.problem.has
        table.bind_inputs([bound[field] if has(field) else None for field in self._compiled.input_fields])
        table.bind_outputs([bound[field] for field in self._compiled.output_fields])
        recorder = self._device.create_command_recorder()
        recorder.record_upload(self.buffers["InputTensor"])
        recorder.record_dispatch(self._compiled, table)
        recorder.record_readback(self._y)
        return recorder

    def step(self, x: np.ndarray) -> np.ndarray:
        self.buffers["InputTensor"].write(x)
        self.execute()
        return self._y.read(self._shape)

    def execute(self) -> None:
        self._recorders[0].execute()
        self._recorders.reverse()


def steppers(device: vkdml.Device, case: Case) -> dict[str, Step]:
    """Ways to run one step on x [B, I]."""
    arrays = case.arrays()
    layer = vkdml.LSTM(arrays["W"], arrays["R"], arrays["B"], device=device)
    session = InferenceSession(make_model(case), device=device)
    stream = session.stream(dict(zip(OUTPUTS[1:], STATE_INPUTS)))
    theirs = onnxruntime.InferenceSession(make_model(case), providers=["CPUExecutionProvider"])
    state = [np.zeros(case.state_shape, np.float32)] * case.states

    def step_theirs(x: np.ndarray) -> np.ndarray:
        y, *state[:] = theirs.run(None, {"X": x[None], **dict(zip(STATE_INPUTS, state))})
        return y[0, 0]

    return {"layer.stream": layer.stream(case.batch).step, "descriptors": ByHand(device, case).step,
            "session.stream": lambda x: stream.step({"X": x[None]})[0][0, 0], "onnxruntime-cpu": step_theirs}


def measure_steps(ways: dict[str, Step], inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Seconds of each step, by way. Raises if two ways disagree."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for start in tqdm(range(0, len(inputs), BLOCK), "steps", disable=None):
        block = inputs[start:start + BLOCK]
        last = {}
        for way, step in ways.items():
            time.sleep(REST_SECONDS)
            last[way] = _timed(step, block, seconds[way])
        for way, y in last.items():
            np.testing.assert_allclose(y, last["onnxruntime-cpu"], atol=1e-4, err_msg=way)
    return {way: np.array(times) for way, times in seconds.items()}


def _timed(step: Step, inputs: np.ndarray, seconds: list[float]) -> np.ndarray:
    """The result of the last step."""
    for x in inputs:
        started = time.perf_counter()
        y = step(x)
        seconds.append(time.perf_counter() - started)
    return y


def measure_packing(device: vkdml.Device, hidden: int, count: int) -> tuple[float, float]:
    """Median seconds of an execution with weights as in the one before, and with weights that were written in between."""
    case = Case("gru", 1, 1, hidden, hidden, streaming=True)
    operator, arrays = ByHand(device, case), case.arrays()
    seconds: tuple[list[float], list[float]] = ([], [])
    operator.execute()
    for _ in range(count):
        for is_written, times in enumerate(seconds):
            if is_written:
                for name in ("W", "R", "B"):
                    operator.buffers[FIELDS[name]].upload(arrays[name])
            started = time.perf_counter()
            operator.execute()
            times.append(time.perf_counter() - started)
    return median(seconds[0]), median(seconds[1])


def row(way: str, seconds: np.ndarray) -> dict[str, Any]:
    microseconds = seconds * 1e6
    quantiles = dict(zip(("p50", "p99", "p99.9"), np.quantile(microseconds, (0.5, 0.99, 0.999)).tolist()))
    return {"way": way, **{f"{name}, us": value for name, value in quantiles.items()}, "max, us": float(np.max(microseconds))}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.streaming", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10000, help="calls of each way (10000)")
    parser.add_argument("--hidden", type=int, default=256, help="H and I (256)")
    parser.add_argument("--packings", type=int, default=50, help="executions with changed weights (50)")
    parser.add_argument("--json", type=Path, help="write the numbers to a file too")
    chosen = parser.parse_args(arguments)
    device = vkdml.Device()
    print(f"{device.info.name}, {device.info.driver} {device.info.driver_version}\n")
    case = Case("lstm", 1, 1, chosen.hidden, chosen.hidden, streaming=True)
    inputs = np.random.default_rng(1).standard_normal((chosen.steps, 1, chosen.hidden), np.float32)
    ways = steppers(device, case)
    for step in ways.values():  # the first one compiles
        step(inputs[0])
    steps = [row(way, seconds) for way, seconds in measure_steps(ways, inputs).items()]
    print(table(steps, dict.fromkeys(steps[0], ".0f") | {"way": ""}), "\n")
    packed = []
    for hidden in PACKED_HIDDEN:
        unchanged, changed = measure_packing(device, hidden, chosen.packings)
        packed.append({"GRU, H = I": hidden, "weights as before, ms": unchanged * 1e3, "weights written, ms": changed * 1e3})
    print(table(packed, {name: ".3f" for name in packed[0] if name.endswith("ms")}))
    if chosen.json:
        chosen.json.write_text(as_json({"device": vars(device.info), "steps": steps, "packing": packed}))


if __name__ == "__main__":
    main()
