"""Nodes of linear layers between recurrent nodes: which of them the device computes, and by which operators.

Sources: ONNX MatMul 1 to 13, Gemm 7 to 13, Add, Sub and Mul 7 to 14, Cast 6 to 25 between types that are computed in float32,
and the operators that are activations of recurrent nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...operators import activations, element_types
from ...operators import plain_problem as problems
from ...operators.checks import least_tensor, packed_strides, strides_of
from ...operators.element_types import ElementType
from ...operators.plain_problem import OUTPUT, PlainProblem
from .graph_nodes import GraphNode, refusing

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul}
_NONE = frozenset[str]()
_PRODUCTS = {"MatMul": _NONE, "Gemm": {"alpha", "beta", "transA", "transB"}}
_ACTIVATIONS = {"Elu": {"alpha"}, "HardSigmoid": {"alpha", "beta"}, "LeakyRelu": {"alpha"}, "ThresholdedRelu": {"alpha"},
                **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), _NONE)}
ATTRIBUTES = {**_PRODUCTS, **_ACTIVATIONS, **dict.fromkeys(_OPERATIONS, _NONE),  # others are of old versions
               "Cast": {"to", "saturate", "round_mode"}}  # the last two are for other types
# By ONNX's number of the type
_ELEMENTS: dict[int, ElementType] = {1: element_types.FLOAT32, 10: element_types.FLOAT16, 16: element_types.BFLOAT16}


class Linear:
    """A node that computes floats. inputs, outputs: names. is_product: it multiplies its first input by a constant matrix."""

    is_shape = False

    def __init__(self, node: GraphNode, element: ElementType) -> None:
        self.node, self.is_product = node, node.op_type in _PRODUCTS
        self.inputs, self.outputs = [name for name in node.inputs if name], node.outputs
        self._attributes, self._to = node.attributes, node.attributes.get("to")
        self._source, self._element = element, _ELEMENTS[self._to] if self._to else element
        self.dtype = np.dtype(self._element.name)
        self._function: Any = operator.pos if self._to else _OPERATIONS.get(node.op_type, self._product)
        if node.op_type in _ACTIVATIONS:
            given = [[self._attributes[name]] if name in self._attributes else [] for name in ("alpha", "beta")]
            desc, = activations.from_onnx(str(node), [node.op_type], *given)
            self._function = activations.parametrize(str(node), "", desc, element)

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The output by name, computed on the host. Raises InvalidArgumentError for arrays that the node cannot take."""
        arrays = [values[name] for name in self.inputs]
        with refusing(self.node, arrays), np.errstate(over="ignore", invalid="ignore"):
            result = self._function(*(array.astype(np.float64) for array in arrays))
            return {self.outputs[0]: np.asarray(result).astype(self.dtype)}

    def problem(self, arrays: Sequence[np.ndarray]) -> tuple[PlainProblem, tuple[int, ...]]:
        """What the device computes, and the output's shape. arrays: the inputs as they lie, a product's of two dimensions each.
        Raises InvalidArgumentError for arrays that the node cannot take.
        """
        with refusing(self.node, arrays):
            if self.is_product:
                a, b, *c = self._matrices(arrays)
                if a.shape[1] != b.shape[0]:
                    raise ValueError("sizes that do not agree")
                shape: tuple[int, ...] = (a.shape[0], b.shape[1])
                found = dict(zip(("ATensor", "BTensor", "CTensor"), (a, b, *(np.broadcast_to(array, shape) for array in c))))
            else:
                shape = np.broadcast_shapes(*(array.shape for array in arrays))
                fields = ("ATensor", "BTensor") if len(arrays) == 2 else ("InputTensor",)
                found = {field: np.broadcast_to(array, shape) for field, array in zip(fields, arrays)}
        tensors = {field: least_tensor(self._source.data_type, array.shape, strides_of(array), array.itemsize)
                   for field, array in found.items()}
        tensors[OUTPUT] = least_tensor(self._element.data_type, shape, packed_strides(shape), self._element.itemsize)
        common = problems.common_fields(str(self.node), self._element, tensors)
        if self.is_product:
            return problems.GemmProblem(**common, function=None, transposed=(False, False), alpha=self._scale("alpha"),
                               beta=self._scale("beta")), shape
        if self.node.op_type in _OPERATIONS:
            return problems.ArithmeticProblem(**common, function=None, operation=self._function), shape
        if self._to:
            return problems.CastProblem(**common, function=None, source=self._source), shape
        return problems.ElementwiseProblem(**common, function=self._function), shape

    def _product(self, *arrays: np.ndarray) -> np.ndarray:
        a, b, *c = self._matrices(arrays)
        return self._scale("alpha") * (a @ b) + (self._scale("beta") * c[0] if c else 0)

    def _matrices(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        swaps = [self._attributes.get("transA"), self._attributes.get("transB"), 0]
        return [array.T if swap else array for array, swap in zip(arrays, swaps)]

    def _scale(self, name: str) -> float:
        return float(self._attributes.get(name, 1))


def linear(node: GraphNode, constants: Mapping[str, Sequence[int]], kinds: Mapping[str, int], made: Collection[str],
           is_cpu: bool) -> Linear | None:
    """The node as a Linear; None for another, for one whose data the device does not make or whose weights are computed, and
    for a product where the device is a CPU: onnxruntime is faster there.

    constants: shapes by name. kinds: ONNX's types of values. made: what the device makes.
    """
    if node.domain or node.op_type not in ATTRIBUTES:
        return None
    names = [name for name in node.inputs if name]
    data = [name for name in names if name not in constants]
    element = _ELEMENTS.get(kinds.get(data[0], 0)) if data else None
    if not element or not set(data) <= set(made) or not node.attributes.keys() <= ATTRIBUTES[node.op_type]:
        return None
    has_kernel = node.attributes.get("to") in _ELEMENTS if node.op_type == "Cast" else element is not element_types.BFLOAT16
    if not has_kernel:
        return None
    if node.op_type in _PRODUCTS and (is_cpu or data != names[:1] or len(constants[names[1]]) != 2):
        return None
    return Linear(node, element)
