"""com.microsoft's DynamicQuantizeLSTM, which quantizers make of LSTM: here an LSTM in float32, of dequantized weights.

onnxruntime's kernel quantizes X and H at each step, too; here they are not, so results are nearer to those of the model before
it was quantized. Nodes whose weights are no initializers stay onnxruntime's.

Source: onnxruntime's contributed operators, com.microsoft.DynamicQuantizeLSTM 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from ...errors import InvalidArgumentError
from . import graphs

_NAME = "DynamicQuantizeLSTM"
_FLOATS = 8  # inputs that LSTM has, too; behind them scale and zero point of W, and of R
_WEIGHTS = {1: (8, 9), 2: (10, 11)}  # places of W and R -> those of their scale and zero point
_COUNT = 6  # of these places
_DEFAULTS_SINCE = 4  # the version of ONNX's files from which on an initializer that is an input may be fed


def dequantized(model: ModelProto) -> ModelProto:
    """A copy with LSTM in the place of these nodes; the model itself where it has none."""
    if not any(map(_is_quantized, (node for graph in graphs.nested(model.graph) for node in graph.node))):
        return model
    copied = ModelProto()
    copied.CopyFrom(model)
    fed = {value.name for value in model.graph.input} if model.ir_version >= _DEFAULTS_SINCE else set()
    _dequantize(copied.graph, {}, fed)
    return copied


def _is_quantized(node: NodeProto) -> bool:
    return node.op_type == _NAME and node.domain == "com.microsoft"


def _dequantize(graph: GraphProto, outer: Mapping[str, TensorProto], fed: set[str]) -> None:
    known = {**outer, **{tensor.name: tensor for tensor in graph.initializer if tensor.name not in fed}}
    for node in graph.node:
        for body in graphs.bodies(node):
            _dequantize(body, known, set())
        names = {place: name for place, name in enumerate(node.input) if place in _WEIGHTS or place >= _FLOATS}
        if _is_quantized(node) and len(names) == _COUNT and set(names.values()) <= set(known):
            arrays = {place: numpy_helper.to_array(known[name]) for place, name in names.items()}
            for place, (scale, zero) in _WEIGHTS.items():
                weight = _weight(node, arrays[place], arrays[scale], arrays[zero])
                node.input[place] = f"{node.input[place]} of {next(filter(None, node.output))}"
                graph.initializer.append(numpy_helper.from_array(weight, node.input[place]))
            del node.input[_FLOATS:]
            node.op_type, node.domain = "LSTM", ""


def _weight(node: NodeProto, array: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """LSTM's weight [D, 4 H, inputs] of one that is [D, inputs, 4 H]. scale, zero: [D] or [D, 4 H]."""
    try:
        ours = array.astype(np.int32) - zero.astype(np.int32).reshape(len(array), 1, -1)
        return np.ascontiguousarray((ours * scale.reshape(len(array), 1, -1)).swapaxes(1, 2), np.float32)
    except ValueError as error:
        found = f"shapes {array.shape}, {scale.shape} and {zero.shape} ({error})"
        raise InvalidArgumentError(graphs.describe(node), "weight, scale and zero point", found,
                                   "[D, inputs, 4 H], and [D] or [D, 4 H] twice") from None
