"""The elementwise activations that DirectML can fuse into a recurrent operator: one table, a row for each.

Sources: the DirectML page of each DML_ACTIVATION_*_OPERATOR_DESC; the ONNX operators GRU-22, LSTM-22 and RNN-22.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from .element_types import ElementType
from .header import descs
from .header.descs import DML_OPERATOR_TYPE, ActivationDesc

Function = Callable[[np.ndarray, float, float], np.ndarray]


@dataclass(frozen=True)
class Activation:
    """A row of the table.

    shader_id: its number in the shaders, from which shaders/common/numbers.glsl is generated.
    function: the activation of a float64 array x, given its parameters a and b.
    fields: the descriptor's float parameters, in the order of a and b.
    onnx_name: its name in ONNX's attribute `activations`, if it has one.
    onnx_defaults: the defaults of ONNX's activation_alpha and activation_beta; as many as the activation takes.
    divisors: the fields that must not be 0.
    has_pairs: whether the shaders can compute it for float64 tensors, which they do in pairs of floats.
    """

    operator_type: DML_OPERATOR_TYPE
    desc: type[Any]
    shader_id: int
    function: Function
    fields: tuple[str, ...] = ()
    onnx_name: str | None = None
    onnx_defaults: tuple[float, ...] = ()
    divisors: tuple[str, ...] = ()
    has_pairs: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        """The function is this table's: a pickle only names the row."""
        return _row_of, (self.desc,)


@dataclass(frozen=True)
class FusedActivation:
    """An activation with its parameters. A checked problem has one for each gate function of each direction."""

    activation: Activation
    params: tuple[float, ...] = ()

    @property
    def a(self) -> float:
        return self.params[0] if self.params else 0.0

    @property
    def b(self) -> float:
        return self.params[1] if len(self.params) > 1 else 0.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.activation.function(x, self.a, self.b)


def _elu(x: np.ndarray, a: float, scale: float = 1.0) -> np.ndarray:
    return scale * np.where(x < 0, a * np.expm1(x), x)


def _celu(x: np.ndarray, a: float, b: float) -> np.ndarray:
    return np.where(x < 0, a * np.expm1(x / a), x)


def _sigmoid(x: np.ndarray, a: float = 0, b: float = 0) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _shrink(x: np.ndarray, bias: float, threshold: float) -> np.ndarray:
    inside = np.where(np.isnan(x), x, 0.0)
    return np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, inside))


# 1 + erf(x) has lost its digits long before x = -6
_erfc = np.vectorize(math.erfc, otypes=[np.float64])

_T = DML_OPERATOR_TYPE
_ROWS = [
    Activation(_T.ACTIVATION_IDENTITY, descs.DML_ACTIVATION_IDENTITY_OPERATOR_DESC, 0, lambda x, a, b: x),
    Activation(_T.ACTIVATION_ELU, descs.DML_ACTIVATION_ELU_OPERATOR_DESC, 1,
               lambda x, a, b: _elu(x, a), ("Alpha",), "Elu", (1.0,)),
    Activation(_T.ACTIVATION_CELU, descs.DML_ACTIVATION_CELU_OPERATOR_DESC, 2, _celu, ("Alpha",),
               divisors=("Alpha",)),
    Activation(_T.ACTIVATION_HARD_SIGMOID, descs.DML_ACTIVATION_HARD_SIGMOID_OPERATOR_DESC, 3,
               lambda x, a, b: np.clip(a * x + b, 0, 1), ("Alpha", "Beta"), "HardSigmoid", (0.2, 0.5)),
    Activation(_T.ACTIVATION_LEAKY_RELU, descs.DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC, 4,
               lambda x, a, b: np.where(x < 0, a * x, x), ("Alpha",), "LeakyRelu", (0.01,)),
    Activation(_T.ACTIVATION_LINEAR, descs.DML_ACTIVATION_LINEAR_OPERATOR_DESC, 5,
               lambda x, a, b: a * x + b, ("Alpha", "Beta"), "Affine", (1.0, 0.0)),
    Activation(_T.ACTIVATION_PARAMETRIC_SOFTPLUS, descs.DML_ACTIVATION_PARAMETRIC_SOFTPLUS_OPERATOR_DESC, 6,
               lambda x, a, b: a * _softplus(b * x), ("Alpha", "Beta")),
    Activation(_T.ACTIVATION_RELU, descs.DML_ACTIVATION_RELU_OPERATOR_DESC, 7,
               lambda x, a, b: np.where(x < 0, 0.0, x), onnx_name="Relu"),
    Activation(_T.ACTIVATION_SCALED_ELU, descs.DML_ACTIVATION_SCALED_ELU_OPERATOR_DESC, 8, _elu, ("Alpha", "Gamma")),
    Activation(_T.ACTIVATION_SCALED_TANH, descs.DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC, 9,
               lambda x, a, b: a * np.tanh(b * x), ("Alpha", "Beta"), "ScaledTanh", (1.0, 1.0)),
    Activation(_T.ACTIVATION_SHRINK, descs.DML_ACTIVATION_SHRINK_OPERATOR_DESC, 10, _shrink, ("Bias", "Threshold")),
    Activation(_T.ACTIVATION_SIGMOID, descs.DML_ACTIVATION_SIGMOID_OPERATOR_DESC, 11, _sigmoid, onnx_name="Sigmoid"),
    Activation(_T.ACTIVATION_SOFTPLUS, descs.DML_ACTIVATION_SOFTPLUS_OPERATOR_DESC, 12,
               lambda x, a, b: _softplus(a * x) / a, ("Steepness",), "Softplus", divisors=("Steepness",)),
    Activation(_T.ACTIVATION_SOFTSIGN, descs.DML_ACTIVATION_SOFTSIGN_OPERATOR_DESC, 13,
               lambda x, a, b: x / (1 + np.abs(x)), onnx_name="Softsign"),
    Activation(_T.ACTIVATION_TANH, descs.DML_ACTIVATION_TANH_OPERATOR_DESC, 14,
               lambda x, a, b: np.tanh(x), onnx_name="Tanh"),
    # ONNX contradicts itself at x = alpha: the operator ThresholdedRelu keeps x > alpha (done here), the recurrent operators'
    # texts keep x >= alpha.
    Activation(_T.ACTIVATION_THRESHOLDED_RELU, descs.DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC, 15,
               lambda x, a, b: np.where(x <= a, 0.0, x), ("Alpha",), "ThresholdedRelu", (1.0,)),
    Activation(_T.ACTIVATION_GELU, descs.DML_ACTIVATION_GELU_OPERATOR_DESC, 16,
               lambda x, a, b: 0.5 * x * _erfc(-x / math.sqrt(2)), has_pairs=False),
    Activation(_T.ACTIVATION_SWISH, descs.DML_ACTIVATION_SWISH_OPERATOR_DESC, 17,
               lambda x, a, b: x * _sigmoid(a * x), ("SigmoidInputScale",), has_pairs=False),
    Activation(_T.ACTIVATION_HARD_SWISH, descs.DML_ACTIVATION_HARD_SWISH_OPERATOR_DESC, 18,
               lambda x, a, b: x * np.clip(a * x + b, 0, 1), ("Alpha", "Beta"), has_pairs=False),
]

BY_DESC = {row.desc: row for row in _ROWS}


def _row_of(desc: type[Any]) -> Activation:
    return BY_DESC[desc]


BY_TYPE = {row.operator_type: row for row in _ROWS}
BY_ONNX_NAME = {row.onnx_name.lower(): row for row in _ROWS if row.onnx_name}


def fuse(operator: str, field: str, desc: Any, element: ElementType) -> FusedActivation:
    """Check one entry of ActivationDescs, or a FusedActivation: a DML_OPERATOR_DESC, or the structure in it alone.

    operator, field: how error messages name the operator and the entry. element: the operator's element type.
    Raises InvalidArgumentError.
    """
    if isinstance(desc, descs.DML_OPERATOR_DESC):
        row = BY_TYPE.get(desc.Type)
        if row is None:
            raise InvalidArgumentError(operator, f"{field}.Type", getattr(desc.Type, "name", desc.Type), _ALLOWED)
        if not isinstance(desc.Desc, row.desc):
            raise InvalidArgumentError(operator, f"{field}.Desc", type(desc.Desc).__name__, row.desc.__name__)
        desc = desc.Desc
    if type(desc) not in BY_DESC:
        raise InvalidArgumentError(operator, field, type(desc).__name__, _ALLOWED)
    for tensor in ("InputTensor", "OutputTensor"):
        if getattr(desc, tensor) is not None:
            raise InvalidArgumentError(operator, f"{field}.{tensor}", "a tensor", "None in a fused activation")
    return parametrize(operator, f"{field}.", desc, element)


def parametrize(operator: str, prefix: str, desc: Any, element: ElementType) -> FusedActivation:
    """The activation that a DML_ACTIVATION_*_OPERATOR_DESC describes, its parameters checked and rounded to float32.

    prefix: what error messages write before a field's name. Raises InvalidArgumentError.
    """
    row = BY_DESC[type(desc)]
    if element.pairs and not row.has_pairs:
        raise InvalidArgumentError(operator, f"{prefix}{type(desc).__name__}", element.name,
                                   "another type: this activation is not available in float64")
    return FusedActivation(row, tuple(parameter(operator, prefix + name, getattr(desc, name), name in row.divisors)
                                      for name in row.fields))


def parameter(operator: str, field: str, value: object, is_divisor: bool = False) -> float:
    """The value, rounded to float32. Raises InvalidArgumentError unless it is a finite one, and not 0 if it divides."""
    rounded = np.float32(np.nan)
    if isinstance(value, numbers.Real):
        with suppress(OverflowError), np.errstate(over="ignore"):
            rounded = np.float32(value)
    if not np.isfinite(rounded):
        found = value if isinstance(value, numbers.Real) else shown(value)
        raise InvalidArgumentError(operator, field, found, "a finite float32")
    if is_divisor and rounded == 0:
        raise InvalidArgumentError(operator, field, value, "a number other than 0, because it divides")
    return float(rounded)


def from_onnx(operator: str, names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
              ) -> list[ActivationDesc]:
    """Descriptors for ONNX's attributes activations, activation_alpha and activation_beta (ONNX GRU-22, LSTM-22, RNN-22).

    Names are case-insensitive. Each activation that takes an alpha takes the next one of the list; the same goes for betas.
    Where a list is too short, the ONNX operators' defaults are used. ONNX Runtime does the same.
    Raises InvalidArgumentError for an unknown name, and for values that are left over.
    """
    left = [list(alphas or ()), list(betas or ())]
    result = []
    for i, name in enumerate(names):
        row = BY_ONNX_NAME.get(str(name).lower())
        if row is None:
            raise InvalidArgumentError(operator, f"activations[{i}]", shown(name),
                                       "one of " + ", ".join(sorted(r.onnx_name for r in _ROWS if r.onnx_name)))
        values = [values.pop(0) if values else default for values, default in zip(left, row.onnx_defaults)]
        result.append(row.desc(**dict(zip(row.fields, values))))
    for attribute, values in zip(("activation_alpha", "activation_beta"), left):
        if values:
            raise InvalidArgumentError(operator, attribute, f"{len(values)} values that no activation takes",
                                       "one for each activation that takes one, in order")
    return result


_ALLOWED = "an elementwise activation: " + ", ".join(row.operator_type.name.removeprefix("ACTIVATION_") for row in _ROWS)
