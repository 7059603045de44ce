"""Makes an ONNX model of one node. Programs that show a library's mistakes, in reports, begin with the source of `one_node`."""

import inspect
from typing import Any

import numpy as np
from onnx import helper, numpy_helper, shape_inference


def one_node(op: str, arrays: dict, element: str = "float32", **attributes: Any) -> tuple:
    """Return a serialized ONNX model of one node, weights included (as in exported models), and the other inputs by name."""
    given = {name: np.array(array, "int32" if name == "sequence_lens" else element) for name, array in arrays.items()}
    names = [name if name in given else "" for name in ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "Y_h", "Y_c"][:2 + (op == "LSTM")]
    node = helper.make_node(op, names, outputs, hidden_size=given["R"].shape[2], **attributes)
    weights = [numpy_helper.from_array(given.pop(name), name) for name in names if name in ["W", "R", "B", "P"]]
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], given[name].shape) for name in given]
    results = [helper.make_tensor_value_info(name, kinds["X"], None) for name in outputs]
    graph = helper.make_graph([node], "case", inputs, results, weights)
    opset, ir_version = (22, 10) if element == "bfloat16" else (14, 8)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    return shape_inference.infer_shapes(model).SerializeToString(), given


TEXT = ("from typing import Any\n\nimport numpy as np\nfrom numpy import inf, nan, zeros\n"
        f"from onnx import helper, numpy_helper, shape_inference\n\n{inspect.getsource(one_node)}\n")
