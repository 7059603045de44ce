"""com.microsoft's DynamicQuantizeLSTM, which quantizers make of LSTM: here an LSTM in float32, of dequantized weights.

onnxruntime's kernel quantizes X and H at each step, too; here they are not, so results are nearer to those of the model before
it was quantized.

Source: onnxruntime's contributed operators, com.microsoft.DynamicQuantizeLSTM 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .graph_nodes import GraphNode

QUANTIZED_LSTM = "com.microsoft", "DynamicQuantizeLSTM"
_FLOATS = 8  # inputs that LSTM has, too; behind them scale and zero point of W, and of R
_WEIGHTS = {1: (8, 9), 2: (10, 11)}  # places of W and R -> those of their scale and zero point


def has_constant_weights(node: GraphNode, constants: Mapping[str, object]) -> bool:
    names = [node.inputs[place] for place in (*_WEIGHTS, *range(_FLOATS, 12)) if place < len(node.inputs)]
    return len(names) == 6 and all(name in constants for name in names)


def lstm(node: GraphNode) -> GraphNode:
    """The LSTM, with names of its own for W and R: tuples, which no value of the model has."""
    inputs: list[Any] = [*node.inputs[:_FLOATS]]
    for place in _WEIGHTS:
        inputs[place] = inputs[place], *node.outputs
    return replace(node, op_type="LSTM", domain="", version=7, inputs=inputs)


def lstm_shapes(node: GraphNode, constants: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shapes of W and R of the LSTM, by their names, [D, 4 H, inputs] of [D, inputs, 4 H]."""
    given = {place: constants[node.inputs[place]] for place in _WEIGHTS}
    return {lstm(node).inputs[place]: (*shape[:1], *shape[:0:-1]) for place, shape in given.items()}


def lstm_weights(node: GraphNode, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """W and R of the LSTM, by their names. Scales and zero points are [D] or [D, 4 H]."""
    found = {}
    for place, others in _WEIGHTS.items():
        array, scale, zero = (arrays[node.inputs[at]] for at in (place, *others))
        ours = array.astype(np.int32) - zero.astype(np.int32).reshape(len(array), 1, -1)
        scaled = ours * scale.reshape(len(array), 1, -1)
        found[lstm(node).inputs[place]] = np.ascontiguousarray(scaled.swapaxes(1, 2), np.float32)
    return found
