"""A case as an ONNX model, for the libraries that load such models."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from bench.cases import Case

STATE_INPUTS = ("initial_h", "initial_c")
OUTPUTS = ("Y", "Y_h", "Y_c")


def make_model(case: Case) -> bytes:
    """A serialized model of one node. Weights are initializers, as in exported models.

    Its inputs: X, initial states if the case has them, and the lengths if it is ragged.
    """
    arrays = case.arrays()
    state_inputs = STATE_INPUTS[:case.states]
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, arrays["X"].shape),
              *(helper.make_tensor_value_info(name, TensorProto.FLOAT, case.state_shape) for name in state_inputs)]
    if case.ragged:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [case.batch]))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
               for name, shape in zip(OUTPUTS, case.output_shapes)]
    node = helper.make_node(
        case.cell.upper(), ["X", "W", "R", "B", "lengths" if case.ragged else "", *state_inputs],
        [output.name for output in outputs], hidden_size=case.hidden, **case.attributes)
    weights = [helper.make_tensor(name, TensorProto.FLOAT, arrays[name].shape, arrays[name].tobytes(), raw=True)
               for name in "WRB"]
    model = helper.make_model(helper.make_graph([node], case.cell, inputs, outputs, weights),
                              opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return bytes(model.SerializeToString())


def feeds(case: Case) -> dict[str, np.ndarray]:
    """The arrays of the model's inputs, without the initial states."""
    lengths = {"lengths": case.lengths.astype(np.int32)} if case.ragged else {}
    return {"X": case.arrays()["X"], **lengths}
