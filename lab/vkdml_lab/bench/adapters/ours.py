"""vkdml, called in three ways: host (layers on numpy arrays), device (DirectML's objects, execution only), readback (of Y)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

import vkdml
from vkdml.onnx import run_node
from vkdml_lab.bench.adapters.library import Computes
from vkdml_lab.bench.cases import STATES, Case
from vkdml_lab.bench.nodes import Node, numbers
from vkdml_lab.bench.runner import Runner, zero_arrays

DESCS = {"gru": vkdml.DML_GRU_OPERATOR_DESC, "lstm": vkdml.DML_LSTM_OPERATOR_DESC}
ACTIVATIONS = {"gru": ("SIGMOID", "TANH"), "lstm": ("SIGMOID", "TANH", "TANH")}
OUTPUTS = ("OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
TYPES = {"float32": vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, "float16": vkdml.DML_TENSOR_DATA_TYPE.FLOAT16}


class Library(Computes):
    def __init__(self, device: int | None = None, dtype: str = "float32") -> None:
        self._device = vkdml.Device(device)
        self._dtype = dtype
        info = self._device.info
        self.description = {"version": vkdml.__version__, "device": f"{info.name}, {info.driver} {info.driver_version}"}

    def compute(self, node: Node) -> dict[str, np.ndarray]:
        model = onnx.load_from_string(node.model())
        outputs = run_node(model.graph.node[0], node.inputs, self._device, opset_version=model.opset_import[0].version)
        return dict(zip(node.outputs, outputs))

    def code(self, node: Node) -> str:
        attributes = "".join(f", {name}={value!r}" for name, value in node.attributes.items())
        return (f"import vkdml\n{numbers(node)}arrays = {{name.lower(): array for name, array in arrays.items()}}\n"
                f"print(vkdml.{node.op.lower()}(**arrays{attributes}))\n")

    def prepare(self, case: Case) -> dict[str, Runner]:
        arrays = {name: array.astype(self._dtype) for name, array in case.arrays().items()}
        layer = Layer(self._device, case, arrays, self._dtype)
        done: list[Any] = []

        def to_numpy(outputs: Sequence[Any]) -> list[np.ndarray]:
            return [output.download(shape, self._dtype) if isinstance(output, vkdml.Buffer) else output
                    for output, shape in zip(outputs, case.output_shapes)]

        def read() -> Sequence[Any]:
            """Bring Y to the host, again and again, as the one execution left it."""
            done[:] = done or layer.execute()
            return [*to_numpy(done[:1]), *done[1:]]

        ways = {"host": self.host(case, arrays), "device": Runner(case, layer.execute, layer.zeros, to_numpy)}
        return ways if case.streaming else {**ways, "readback": Runner(case, read, list, to_numpy)}

    def host(self, case: Case, arrays: dict[str, np.ndarray]) -> Runner:
        x, *weights = arrays.values()
        layer = getattr(vkdml, case.cell.upper())(*weights, **case.attributes, device=self._device)
        lengths = case.lengths if case.ragged else None

        def call(*states: np.ndarray) -> Sequence[Any]:
            outputs: Sequence[Any] = layer(x, sequence_lens=lengths, **dict(zip(("initial_h", "initial_c"), states)))
            return outputs

        return Runner(case, call, lambda: zero_arrays(case, self._dtype), list)


class Layer:
    """An operator with its buffers. Only its execution is recorded: all tensors are on the device already, and stay there.

    Streaming cases use two sets of outputs in turns: the states in one set are the initial states of the execution that writes
    the other.
    """

    def __init__(self, device: vkdml.Device, case: Case, arrays: dict[str, np.ndarray], dtype: str,
                 options: vkdml.Options = vkdml.Options()) -> None:
        self._device = device
        self._case = case
        self._itemsize = np.dtype(dtype).itemsize
        self._compiled = device.compile_operator(device.create_operator(make_desc(case, dtype)), options=options)
        weights = dict(zip(("WeightTensor", "RecurrenceTensor", "BiasTensor"), map(arrays.get, "WRB")))
        buffers = {field: device.upload(array) for field, array in weights.items() if array is not None}
        initialized = self._compiled.problem.initialized  # all weights, in commits that take none at execution
        self._initialize({field: buffer for field, buffer in buffers.items() if field in initialized})
        self._inputs = {"InputTensor": device.upload(arrays["X"])}
        self._inputs |= {field: buffer for field, buffer in buffers.items() if field not in initialized}
        if case.ragged:
            self._inputs["SequenceLengthsTensor"] = device.upload(case.lengths.astype(np.uint32))
        y = self._buffer(case.steps)
        self._outputs = [[y, *(self._buffer() for _ in range(STATES[case.cell]))] for _ in range(2 if case.streaming else 1)]
        # The first execution reads its initial states from the last set.
        self._recorders = [self._record(self._outputs[turn - 1][1:], outputs) for turn, outputs in enumerate(self._outputs)]
        self._turn = 0

    def zeros(self) -> list[vkdml.Buffer]:
        """Zero the initial states of the next execution, and return them."""
        self._turn = 0
        states = self._outputs[-1][1:1 + self._case.states]
        for state in states:
            state.upload(np.zeros(state.size_in_bytes, np.uint8))
        return states

    def execute(self, *_: vkdml.Buffer) -> list[vkdml.Buffer]:
        """Execute and return the outputs. The arguments, which are the last execution's states, are bound already."""
        turn = self._turn
        self._turn = (turn + 1) % len(self._recorders)
        self._recorders[turn].execute()
        return self._outputs[turn]

    def _buffer(self, steps: int = 1) -> vkdml.Buffer:
        return self._device.create_buffer(-(-steps * int(np.prod(self._case.state_shape)) * self._itemsize // 4) * 4)

    def _initialize(self, weights: dict[str, vkdml.Buffer]) -> None:
        initializer = self._device.create_operator_initializer(self._compiled)
        table = self._device.create_binding_table(initializer)
        table.bind_inputs([weights.get(field) for field in self._compiled.input_fields])
        recorder = self._device.create_command_recorder()
        recorder.record_dispatch(initializer, table)
        recorder.execute()

    def _record(self, states: list[vkdml.Buffer], outputs: list[vkdml.Buffer]) -> vkdml.CommandRecorder:
        inputs = self._inputs | dict(zip(("HiddenInitTensor", "CellMemInitTensor"), states[:self._case.states]))
        table = self._device.create_binding_table(self._compiled)
        table.bind_inputs([inputs.get(field) for field in self._compiled.input_fields])
        table.bind_outputs(outputs)
        recorder = self._device.create_command_recorder()
        recorder.record_dispatch(self._compiled, table)
        return recorder


def make_desc(case: Case, dtype: str) -> Any:
    t, b, i, h, d, g = case.steps, case.batch, case.inputs, case.hidden, case.directions, case.gates
    sizes = {"InputTensor": (1, t, b, i), "WeightTensor": (1, d, g * h, i), "RecurrenceTensor": (1, d, g * h, h),
             "BiasTensor": (1, 1, d, 2 * g * h), "OutputSequenceTensor": (t, d, b, h),
             **dict.fromkeys(OUTPUTS[1:1 + STATES[case.cell]], (1, d, b, h)),
             **dict.fromkeys(("HiddenInitTensor", "CellMemInitTensor")[:case.states], (1, d, b, h))}
    tensors = {field: vkdml.DML_BUFFER_TENSOR_DESC(DataType=TYPES[dtype], Sizes=size) for field, size in sizes.items()}
    if case.ragged:
        tensors["SequenceLengthsTensor"] = vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.UINT32,
                                                                         Sizes=(1, 1, 1, b))
    activations = [getattr(vkdml, f"DML_ACTIVATION_{name}_OPERATOR_DESC")() for name in ACTIVATIONS[case.cell]]
    directions = vkdml.DML_RECURRENT_NETWORK_DIRECTION
    flags = {"LinearBeforeReset": case.linear_before_reset} if case.cell == "gru" else {}
    return DESCS[case.cell](**tensors, **flags, ActivationDescs=activations * d,
                            Direction=directions.BIDIRECTIONAL if d == 2 else directions.FORWARD)
