"""The adapter for ncnn on Vulkan. It counts dispatches, as only the driver knows whether a layer runs on Vulkan."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import ncnn
import numpy as np

from vkdml_lab.bench.adapters.library import STATE_INPUTS, Call, Computes, from_numpy, node_of
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.nodes import ACTIVATIONS, GATES, Node, literal
from vkdml_lab.bench.runner import Runner, UnsupportedError
from vkdml_lab.faults import layer
from vkdml_lab.processes import UnavailableError

# For each gate in ncnn's order (r z n, i f o g), its index in ONNX's order (z r h, i o f c)
GATE_ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 2, 1, 3), "RNN": (0,)}
DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}
COUNTED_STEPS = 4


def net_of(param: str, weights: list[np.ndarray], device: int = 0) -> ncnn.Net:
    net = ncnn.Net()
    net.opt.use_vulkan_compute = True
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.set_vulkan_device(device)
    net.load_param_mem(param)
    net.load_model_mem(b"".join(bytes(4) + array.tobytes() for array in weights))  # each behind a tag; 0 stands for float32
    return net


def run(net: ncnn.Net, inputs: dict[str, np.ndarray], outputs: tuple[str, ...]) -> list[np.ndarray]:
    extractor = net.create_extractor()
    for name, array in inputs.items():
        extractor.input(name, ncnn.Mat(array).clone())
    return [np.array(extractor.extract(name)[1]) for name in outputs]


class Library(Computes):
    """ncnn on the first Vulkan device whose name begins with `device`. Layers without a Vulkan kernel run on the CPU."""

    setup = f"import ncnn\nimport numpy as np\n\n{inspect.getsource(net_of)}\n{inspect.getsource(run)}\n"

    def __init__(self, device: str = "") -> None:
        names = devices()
        self._index = next((index for index, name in enumerate(names) if name.startswith(device)), -1)
        if self._index < 0:
            raise UnavailableError(f"ncnn lists no Vulkan device {device}: it has {', '.join(names) or 'none'}")
        counts = counted(device)
        runs_on = names[self._index] if any(counts.values()) else "CPU"
        said = ", ".join(f"{op} {count}" for op, count in counts.items())
        self.description = {"version": version("ncnn"),
                            "device": f"{runs_on}; Vulkan dispatches in {COUNTED_STEPS} steps: {said}"}

    def compute(self, node: Node) -> dict[str, np.ndarray]:
        return dict(zip(node.outputs, self.load(node)(node.inputs)))

    def load(self, node: Node) -> Call:
        """Load a node with its weights. Returns a function from X and the initial states, by name, to the outputs."""
        net = net_of(param_of(node), weights_of(node), self._index)
        state, y = node.shapes

        def call(inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            found = run(net, inputs_of(node, inputs), node.outputs)
            return [array.reshape(y if name == "Y" else state) for name, array in zip(node.outputs, found)]

        return call

    def code(self, node: Node) -> str:
        weights = ", ".join(f"np.float32({literal(array)})" for array in weights_of(node))
        inputs = ", ".join(f'"{name}": np.float32({literal(array)})' for name, array in inputs_of(node, node.inputs).items())
        return f"net = net_of({param_of(node)!r}, [{weights}])\nprint(*run(net, {{{inputs}}}, {node.outputs}))\n"

    def prepare(self, case: Case) -> dict[str, Runner]:
        """Return {"host": Runner}, as there is only one way to call the layer: from numpy to numpy."""
        node = node_of(case)
        return {"host": from_numpy(case, self.load(node), node.inputs)}


def devices() -> list[str]:
    return [ncnn.get_gpu_info(index).device_name() for index in range(ncnn.get_gpu_count())]


def param_of(node: Node) -> str:
    """Return a node in ncnn's text format, with ONNX's tensor names. Raises UnsupportedError if ncnn cannot express it."""
    lacking = {"batches: one row": node.batch != 1, "sequence_lens": "sequence_lens" in node.inputs, "P": "P" in node.inputs,
               "clip": node.get("clip") is not None, "input_forget": node.get("input_forget"),
               node.element: node.element != "float32", "T = 0": not node.steps,
               "linear_before_reset = 0": node.op == "GRU" and not node.get("linear_before_reset"),
               "such activations": node.activations != ACTIVATIONS[node.op] * node.directions}
    if missing := [name for name, is_so in lacking.items() if is_so]:
        raise UnsupportedError(f"ncnn's {node.op} has no {missing[0]}")
    inputs, outputs = list(inputs_of(node, node.inputs)), node.outputs
    lines = [f"Input {name} 0 1 {name}" for name in inputs]
    lines.append(f"{node.op} layer {len(inputs)} {len(outputs)} {' '.join([*inputs, *outputs])} 0={node.hidden} "
                 f"1={node.inputs['W'].size} 2={DIRECTIONS[node.get('direction')]}")
    return "\n".join(["7767517", f"{len(lines)} {len(inputs) + len(outputs)}", *lines, ""])


def weights_of(node: Node) -> list[np.ndarray]:
    """Return W, biases and R in ncnn's form. The biases of W and R are added, except in a GRU's last gate."""
    order, gates, hidden = list(GATE_ORDER[node.op]), GATES[node.op], node.hidden
    w, r = (node.inputs[name].reshape(node.directions, gates, hidden, -1)[:, order] for name in ("W", "R"))
    b = node.inputs.get("B", np.zeros((node.directions, 2 * gates * hidden), np.float32))
    of_w, of_r = (part.reshape(node.directions, gates, hidden)[:, order] for part in np.split(b, 2, axis=1))
    bias = np.concatenate([of_w[:, :2] + of_r[:, :2], of_w[:, 2:], of_r[:, 2:]], axis=1) if node.op == "GRU" else of_w + of_r
    return [np.ascontiguousarray(array) for array in (w, bias, r)]


def inputs_of(node: Node, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return X as [T, I]. If any initial state is given, also return all as [directions, hidden], with 0 for a missing one."""
    names = STATE_INPUTS[:len(node.outputs) - 1]
    found = {"X": np.ascontiguousarray(given["X"]).reshape(node.steps, -1)}
    if any(name in given for name in names):
        zeros = np.zeros((node.directions, node.hidden), np.float32)
        found |= {name: np.ascontiguousarray(given.get(name, zeros)).reshape(zeros.shape) for name in names}
    return found


def counted(device: str) -> dict[str, int]:
    """Run a few steps of each cell in a process whose Vulkan layer counts dispatches. Returns the counts by cell."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            variables = layer.build(Path(folder))
        except (OSError, subprocess.CalledProcessError) as error:
            raise UnavailableError(f"dispatches cannot be counted: {error}") from None
        done = subprocess.run([sys.executable, "-m", __name__, folder, device], env={**os.environ, **variables}, text=True,
                              capture_output=True)
    if done.returncode:
        raise UnavailableError(f"dispatches cannot be counted: {done.stderr.strip()[-300:]}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(folder: str, device: str) -> None:
    counter, found, names = layer.Layer(Path(folder)), {}, devices()
    index = next(index for index, name in enumerate(names) if name.startswith(device))
    for op, gates in GATES.items():
        arrays = {"X": (COUNTED_STEPS, 1, 8), "W": (1, 8 * gates, 8), "R": (1, 8 * gates, 8)}
        node = Node(op, {"linear_before_reset": 1}, {name: np.ones(size, np.float32) for name, size in arrays.items()})
        net = net_of(param_of(node), weights_of(node), index)
        before = counter.dispatches
        run(net, inputs_of(node, node.inputs), node.outputs)
        found[op] = counter.dispatches - before
    if not counter.counts()["vkCreateDevice"]:
        raise SystemExit("ncnn does not load Vulkan's layers")
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
