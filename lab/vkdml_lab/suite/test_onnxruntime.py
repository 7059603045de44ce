"""Compares random nodes with ONNX Runtime's CPU provider, an independent implementation."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from vkdml.onnx import run_node
from vkdml.operators import element_types
from vkdml_lab.suite import recording
from vkdml_lab.suite.sharpest import drawn
from vkdml_lab.suite.support import CELLS, assert_close, random_numbers

pytestmark = pytest.mark.device

# ONNX's default parameters; ONNX Runtime uses 0 for Affine, ScaledTanh and ThresholdedRelu
ALPHA = {"Affine": 0.8, "Elu": 0.9, "HardSigmoid": 0.3, "LeakyRelu": 0.1, "ScaledTanh": 0.7, "ThresholdedRelu": 0.2}
BETA = {"Affine": 0.1, "HardSigmoid": 0.4, "ScaledTanh": 0.6}
# Softplus overflows to NaN in ONNX Runtime
NAMES = ["Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softsign", "Tanh", "ThresholdedRelu"]


def random_node(seed):
    rng = random_numbers(seed)
    cell = CELLS[seed // 3 % len(CELLS)]
    gates = len(cell.gates)
    t, b, i, h = (int(size) for size in rng.integers(1, [9, 7, 12, 20]))
    direction = ["forward", "reverse", "bidirectional"][seed % 3]
    d = 2 if direction == "bidirectional" else 1

    dtype = np.float16 if seed % 4 == 3 else np.float32  # ONNX Runtime has these operators in no other type

    def make(*shape):
        return (rng.standard_normal(shape) * 0.4).astype(dtype)

    inputs = {"X": make(t, b, i), "W": make(d, gates * h, i), "R": make(d, gates * h, h), "B": make(d, 2 * gates * h),
              "sequence_lens": rng.integers(0, t + 1, b).astype(np.int32), "initial_h": make(d, b, h),
              "initial_c": make(d, b, h), "P": make(d, 3 * h)}
    order = [name for field, name in cell.arguments.items() if field in cell.inputs]
    inputs = {name: inputs[name] for name in order if name in ("X", "W", "R") or rng.random() < 0.7}
    attributes = {"direction": direction, "hidden_size": h} | {name: int(rng.integers(2)) for name in cell.flags.values()}
    if rng.random() < 0.7:
        names = [str(name) for name in rng.choice(NAMES, cell.activations * d)]
        attributes |= {"activations": names, "activation_alpha": [ALPHA[name] for name in names if name in ALPHA],
                       "activation_beta": [BETA[name] for name in names if name in BETA]}
    if rng.random() < 0.3:
        attributes["clip"] = float(rng.uniform(0.2, 2))
    attributes = {name: value for name, value in attributes.items() if value != []}
    outputs = [cell.arguments[field] for field in cell.outputs]
    return helper.make_node(cell.name, [name if name in inputs else "" for name in order], outputs, **attributes), inputs


@drawn("random nodes", 120)
def test_random_node(seed):
    node, inputs = random_node(seed)
    graph = helper.make_graph(
        [node], "node",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(inputs["X"].dtype), None) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = dict(zip(node.output, session.run(None, inputs), strict=True))
    results = run_node(node, inputs, opset_version=14)._asdict()
    recording.RUNNING.can_run_again(lambda: run_node(node, inputs, opset_version=14)._asdict())
    assert_close(node.op_type, element_types.of(inputs["X"].dtype), ["ONNX Runtime"], results, expected)


@pytest.mark.parametrize("seed", range(120, 2000))
def test_random_node_long(seed):
    test_random_node(seed)
