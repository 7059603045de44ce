"""The model that every library is asked; the function's text is also the beginning of each program that shows a mistake."""

import inspect
from typing import Any

import numpy as np
from onnx import helper, numpy_helper


def one_node(op: str, arrays: dict, element: str = "float32", **attributes: Any) -> tuple:
    """A serialized ONNX model of one node, whose weights are initializers as in exported models, and its inputs."""
    given = {name: np.array(array, "int32" if name == "sequence_lens" else element) for name, array in arrays.items()}
    names = [name if name in given else "" for name in ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]]
    while not names[-1]:
        names.pop()
    (first, second, _), (d, _, h) = given["X"].shape, given["R"].shape
    y, state = ((first, second, d, h), (first, d, h)) if attributes.get("layout") else ((first, d, second, h), (d, second, h))
    outputs = {"Y": y, "Y_h": state, "Y_c": state} if op == "LSTM" else {"Y": y, "Y_h": state}
    kind = helper.np_dtype_to_tensor_dtype(given["X"].dtype)
    node = helper.make_node(op, names, list(outputs), hidden_size=h, **attributes)
    weights = [numpy_helper.from_array(given.pop(name), name) for name in names if name in ("W", "R", "B", "P")]
    inputs = [helper.make_tensor_value_info(name, kind if name != "sequence_lens" else 6, given[name].shape) for name in given]
    results = [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()]
    opset, ir_version = (22, 10) if element == "bfloat16" else (14, 8)
    model = helper.make_model(helper.make_graph([node], "case", inputs, results, weights), ir_version=ir_version,
                              opset_imports=[helper.make_opsetid("", opset)])
    return model.SerializeToString(), given


TEXT = ("from typing import Any\n\nimport numpy as np\nfrom numpy import inf, nan, zeros\nfrom onnx import helper, numpy_helper\n\n"
        f"{inspect.getsource(one_node)}\n")
