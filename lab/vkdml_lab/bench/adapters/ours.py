"""The adapter for vkdml, with all ways to call it. The benchmark uses a layer on numpy arrays, and DirectML's objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx

import vkdml
from vkdml.onnx import InferenceSession, run_node
from vkdml_lab.bench.adapters.library import STATE_INPUTS, Computes, from_numpy, node_of
from vkdml_lab.bench.cases import QUEUED, STATES, Case
from vkdml_lab.bench.nodes import Node, numbers
from vkdml_lab.bench.runner import Runner, zero_arrays

DESCS = {"gru": vkdml.DML_GRU_OPERATOR_DESC, "lstm": vkdml.DML_LSTM_OPERATOR_DESC}
ACTIVATIONS = {"gru": ("SIGMOID", "TANH"), "lstm": ("SIGMOID", "TANH", "TANH")}
INPUTS = ("InputTensor", "WeightTensor", "RecurrenceTensor", "BiasTensor", "SequenceLengthsTensor")
OUTPUTS = ("OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
Arrays = Mapping[str, np.ndarray]
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
        ways = self.ways(case)
        return {way: ways[way]() for way in ("host", "device")}

    def ways(self, case: Case) -> dict[str, Callable[[], Runner]]:
        """Return all ways to call a layer, by name: functions that return a Runner.

        Outputs come back to the host from a layer (host), its stream (stream), an ONNX session (session) and a converted
        PyTorch module (module). They stay on the device with DirectML's objects, executed one by one (device) or ten at once
        (queued), and if only the kernels run (kernels).
        """
        arrays = {name: array.astype(self._dtype) for name, array in case.arrays().items()}
        made = {"host": self._host, **({"module": self._module} if find_spec("torch") else {}), "session": self._session,
                "device": self._resident,
                **({"stream": self._stream} if case.streaming else {"queued": self._queued, "kernels": self._kernels})}
        return {way: partial(make, case, arrays) for way, make in made.items()}

    def _layer(self, case: Case, arrays: Arrays) -> Any:
        _, *weights = arrays.values()
        return getattr(vkdml, case.cell.upper())(*weights, **case.attributes, device=self._device)

    def _host(self, case: Case, arrays: Arrays) -> Runner:
        layer, x = self._layer(case, arrays), arrays["X"]
        lengths = case.lengths if case.ragged else None

        def call(*states: np.ndarray) -> Sequence[Any]:
            outputs: Sequence[Any] = layer(x, sequence_lens=lengths, **dict(zip(STATE_INPUTS, states)))
            return outputs

        return Runner(case, call, lambda: zero_arrays(case, self._dtype), list)

    def _stream(self, case: Case, arrays: Arrays) -> Runner:
        stream, x = self._layer(case, arrays).stream(case.batch), arrays["X"][0]

        def outputs(last: Sequence[np.ndarray]) -> list[np.ndarray]:
            return [last[0].reshape(case.output_shapes[0]), *(stream.state[name] for name in STATE_INPUTS[:case.states])]

        return Runner(case, lambda *_: [stream.step(x)], lambda: stream.reset() or (), outputs)

    def _module(self, case: Case, arrays: Arrays) -> Runner:
        import torch

        import vkdml.torch
        from vkdml_lab.bench.adapters import torch_nn

        module = vkdml.torch.convert(torch_nn.make_module(node_of(case, self._dtype)), device=self._device)
        call, x = torch_nn.caller(module, case.lengths if case.ragged else None), torch.from_numpy(arrays["X"])
        return Runner(case, lambda *states: call(x, states), partial(torch_nn.state_tensors, case, x.dtype),
                      torch_nn.to_numpy(case))

    def _session(self, case: Case, arrays: Arrays) -> Runner:
        node = node_of(case, self._dtype)
        session = InferenceSession(node.model(), device=self._device)
        return from_numpy(case, lambda feeds: session.run(None, feeds), node.feeds)

    def _resident(self, case: Case, arrays: Arrays) -> Runner:
        layer = Layer(self._device, case, arrays, self._dtype)
        return Runner(case, layer.execute, layer.zeros, self._downloaded(case))

    def _queued(self, case: Case, arrays: Arrays) -> Runner:
        layer = Layer(self._device, case, arrays, self._dtype)
        return Runner(case, layer.execute_queued, layer.zeros, self._downloaded(case), QUEUED)

    def _kernels(self, case: Case, arrays: Arrays) -> Runner:
        """Return a Runner of only the kernels of the way "device". One call runs them ten times, in one submission."""
        from vkdml_lab.internals import Run, Trial, open_device  # another commit's package may lack these

        layer = Layer(self._device, case, arrays, self._dtype)
        problem, plan = layer.compiled.problem, layer.compiled.plan
        given = dict(zip(INPUTS, (*arrays.values(), case.lengths.astype(np.uint32))))
        trial = Trial(open_device(self._device.info), problem, given)
        run = Run(trial, replace(plan, execute=plan.execute * QUEUED))

        def call() -> Sequence[Any]:
            run.execute()
            return ()

        def outputs(_: Sequence[Any]) -> list[np.ndarray]:
            if run.timeouts:
                raise RuntimeError(f"workgroups did not meet in {run.timeouts} runs")
            return [found.view(self._dtype)[:np.prod(shape)].reshape(shape)
                    for found, shape in zip(trial.outputs().values(), case.output_shapes)]

        return Runner(case, call, tuple, outputs, QUEUED)

    def _downloaded(self, case: Case) -> Callable[[Sequence[Any]], list[np.ndarray]]:
        return lambda outputs: [buffer.download(shape, self._dtype) for buffer, shape in zip(outputs, case.output_shapes)]


class Layer:
    """A case's operator with its buffers. Its recorded commands copy nothing, as all tensors stay on the device.

    Streaming cases have two sets of outputs, which executions use in turn. Each execution takes its initial states from the set
    that the execution before it wrote.
    """

    def __init__(self, device: vkdml.Device, case: Case, arrays: Arrays, dtype: str) -> None:
        self._device = device
        self._case = case
        self._itemsize = np.dtype(dtype).itemsize
        self.compiled = device.compile_operator(device.create_operator(make_desc(case, dtype)))
        weights = dict(zip(INPUTS[1:], map(arrays.get, "WRB")))
        buffers = {field: device.upload(array) for field, array in weights.items() if array is not None}
        initialized = self.compiled.problem.initialized  # all weights, in commits that take none at execution
        self._initialize({field: buffer for field, buffer in buffers.items() if field in initialized})
        self._inputs = {"InputTensor": device.upload(arrays["X"])}
        self._inputs |= {field: buffer for field, buffer in buffers.items() if field not in initialized}
        if case.ragged:
            self._inputs["SequenceLengthsTensor"] = device.upload(case.lengths.astype(np.uint32))
        y = self._buffer(case.steps)
        self._outputs = [[y, *(self._buffer() for _ in range(STATES[case.cell]))] for _ in range(2 if case.streaming else 1)]
        # The first execution takes its initial states from the last set
        self._recorders = [self._record(self._outputs[turn - 1][1:], outputs) for turn, outputs in enumerate(self._outputs)]
        self._turn = 0

    def zeros(self) -> list[vkdml.Buffer]:
        """Set the initial states of the next execution to 0. Returns their buffers."""
        self._turn = 0
        states = self._outputs[-1][1:1 + self._case.states]
        for state in states:
            state.upload(np.zeros(state.size_in_bytes, np.uint8))
        return states

    def execute(self, *_: vkdml.Buffer) -> list[vkdml.Buffer]:
        """Execute the operator once. Returns the outputs' buffers. Arguments are ignored: initial states are already bound."""
        turn = self._turn
        self._turn = (turn + 1) % len(self._recorders)
        self._recorders[turn].execute()
        return self._outputs[turn]

    def execute_queued(self) -> list[vkdml.Buffer]:
        """Begin ten executions, then wait for all. Returns the outputs' buffers."""
        for pending in [self._recorders[0].execute_async() for _ in range(QUEUED)]:
            pending.wait()
        return self._outputs[0]

    def _buffer(self, steps: int = 1) -> vkdml.Buffer:
        return self._device.create_buffer(-(-steps * int(np.prod(self._case.state_shape)) * self._itemsize // 4) * 4)

    def _initialize(self, weights: dict[str, vkdml.Buffer]) -> None:
        initializer = self._device.create_operator_initializer(self.compiled)
        table = self._device.create_binding_table(initializer)
        table.bind_inputs([weights.get(field) for field in self.compiled.input_fields])
        recorder = self._device.create_command_recorder()
        recorder.record_dispatch(initializer, table)
        recorder.execute()

    def _record(self, states: list[vkdml.Buffer], outputs: list[vkdml.Buffer]) -> vkdml.CommandRecorder:
        inputs = self._inputs | dict(zip(("HiddenInitTensor", "CellMemInitTensor"), states[:self._case.states]))
        table = self._device.create_binding_table(self.compiled)
        table.bind_inputs([inputs.get(field) for field in self.compiled.input_fields])
        table.bind_outputs(outputs)
        recorder = self._device.create_command_recorder()
        recorder.record_dispatch(self.compiled, table)
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
