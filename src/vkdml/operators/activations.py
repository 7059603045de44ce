"""The elementwise activations that DirectML can fuse into a recurrent operator: one table, a row for each.

Sources: the DirectML page of each DML_ACTIVATION_*_OPERATOR_DESC; the ONNX operators GRU-22, LSTM-22 and RNN-22.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from .checks import OPERATOR_TYPES, is_one_of
from .element_types import ElementType
from .header import descs

MAX_FLOAT32 = float(np.finfo(np.float32).max)

Function = Callable[[np.ndarray, float, float], np.ndarray]


@dataclass(frozen=True)
class Activation:
    """An activation: a row of the table.

    desc: its structure, which has InputTensor, OutputTensor and up to two parameters, a and b.
    shader_id: its number in the shaders, from which shaders/common/numbers.glsl is generated.
    function: the activation of a float64 array x, given a and b.
    onnx_name: its name in ONNX's attribute `activations`, if it has one.
    onnx_defaults: the defaults of ONNX's activation_alpha and activation_beta; as many as the activation takes.
    divisors: the parameters that must not be 0.
    has_pairs: whether the shaders can compute it for float64 tensors, which they do in pairs of floats.
    slope: the derivative at x, given x and the activation's result y there; None if no gradient needs it.
    """

    desc: type[Any]
    shader_id: int
    function: Function
    onnx_name: str | None = None
    onnx_defaults: tuple[float, ...] = ()
    divisors: tuple[str, ...] = ()
    has_pairs: bool = True
    slope: Callable[[Any, Any], Any] | None = None

    @cached_property
    def operator_type(self) -> descs.DML_OPERATOR_TYPE:
        return OPERATOR_TYPES[self.desc]

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The structure's names of the parameters a and b, in this order."""
        return tuple(field.name for field in dataclasses.fields(self.desc))[2:]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the descriptor's class, as a lambda cannot be pickled."""
        return _row_of, (self.desc,)


@dataclass(frozen=True)
class ParametrizedActivation:
    """An activation with its parameters. A checked problem has one for each gate function of each direction."""

    activation: Activation
    params: tuple[float, ...] = ()

    @property
    def a(self) -> float:
        return self.params[0] if self.params else 0.0

    @property
    def b(self) -> float:
        return self.params[1] if len(self.params) > 1 else 0.0

    @property
    def slope(self) -> Any:
        return self.activation.slope

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


# erfc(-x) keeps its digits for negative x, where 1 + erf(x) loses them
_erfc = np.vectorize(math.erfc, otypes=[np.float64])

_ROWS = [
    Activation(descs.DML_ACTIVATION_IDENTITY_OPERATOR_DESC, 0, lambda x, a, b: x),
    Activation(descs.DML_ACTIVATION_ELU_OPERATOR_DESC, 1, lambda x, a, b: _elu(x, a), "Elu", (1.0,)),
    Activation(descs.DML_ACTIVATION_CELU_OPERATOR_DESC, 2, _celu, divisors=("Alpha",)),
    Activation(descs.DML_ACTIVATION_HARD_SIGMOID_OPERATOR_DESC, 3, lambda x, a, b: np.clip(a * x + b, 0, 1), "HardSigmoid",
               (0.2, 0.5)),
    Activation(descs.DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC, 4, lambda x, a, b: np.where(x < 0, a * x, x), "LeakyRelu",
               (0.01,)),
    Activation(descs.DML_ACTIVATION_LINEAR_OPERATOR_DESC, 5, lambda x, a, b: a * x + b, "Affine", (1.0, 0.0)),
    Activation(descs.DML_ACTIVATION_PARAMETRIC_SOFTPLUS_OPERATOR_DESC, 6, lambda x, a, b: a * _softplus(b * x)),
    Activation(descs.DML_ACTIVATION_RELU_OPERATOR_DESC, 7, lambda x, a, b: np.where(x < 0, 0.0, x), "Relu",
               slope=lambda x, y: x > 0),
    Activation(descs.DML_ACTIVATION_SCALED_ELU_OPERATOR_DESC, 8, _elu),
    Activation(descs.DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC, 9, lambda x, a, b: a * np.tanh(b * x), "ScaledTanh", (1.0, 1.0)),
    Activation(descs.DML_ACTIVATION_SHRINK_OPERATOR_DESC, 10, _shrink),
    Activation(descs.DML_ACTIVATION_SIGMOID_OPERATOR_DESC, 11, _sigmoid, "Sigmoid", slope=lambda x, y: y * (1 - y)),
    Activation(descs.DML_ACTIVATION_SOFTPLUS_OPERATOR_DESC, 12, lambda x, a, b: _softplus(a * x) / a, "Softplus",
               divisors=("Steepness",)),
    Activation(descs.DML_ACTIVATION_SOFTSIGN_OPERATOR_DESC, 13, lambda x, a, b: x / (1 + np.abs(x)), "Softsign"),
    Activation(descs.DML_ACTIVATION_TANH_OPERATOR_DESC, 14, lambda x, a, b: np.tanh(x), "Tanh",
               slope=lambda x, y: 1 - y * y),
    # ONNX contradicts itself at x = alpha: the operator ThresholdedRelu keeps x > alpha (done here), the recurrent operators'
    # texts keep x >= alpha.
    Activation(descs.DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC, 15, lambda x, a, b: np.where(x <= a, 0.0, x),
               "ThresholdedRelu", (1.0,)),
    Activation(descs.DML_ACTIVATION_GELU_OPERATOR_DESC, 16, lambda x, a, b: 0.5 * x * _erfc(-x / math.sqrt(2)),
               has_pairs=False),
    Activation(descs.DML_ACTIVATION_SWISH_OPERATOR_DESC, 17, lambda x, a, b: x * _sigmoid(a * x), has_pairs=False),
    Activation(descs.DML_ACTIVATION_HARD_SWISH_OPERATOR_DESC, 18, lambda x, a, b: x * np.clip(a * x + b, 0, 1),
               has_pairs=False),
]

BY_DESC = {row.desc: row for row in _ROWS}


def _row_of(desc: type[Any]) -> Activation:
    return BY_DESC[desc]


BY_TYPE = {row.operator_type: row for row in _ROWS}
BY_ONNX_NAME = {row.onnx_name.lower(): row for row in _ROWS if row.onnx_name}


def fuse(operator: str, field: str, desc: Any, element: ElementType) -> ParametrizedActivation:
    """Check an activation that is fused into an operator: a DML_OPERATOR_DESC, or the structure in it alone.

    operator, field: how error messages name the operator and the entry. element: the operator's element type.
    Raises InvalidArgumentError.
    """
    if isinstance(desc, descs.DML_OPERATOR_DESC):
        row = BY_TYPE[desc.Type] if is_one_of(desc.Type, BY_TYPE) else None
        if row is None:
            raise InvalidArgumentError(operator, f"{field}.Type", shown(desc.Type), _ALLOWED)
        if not isinstance(desc.Desc, row.desc):
            raise InvalidArgumentError(operator, f"{field}.Desc", type(desc.Desc).__name__, row.desc.__name__)
        desc = desc.Desc
    if type(desc) not in BY_DESC:
        raise InvalidArgumentError(operator, field, type(desc).__name__, _ALLOWED)
    for tensor in ("InputTensor", "OutputTensor"):
        if getattr(desc, tensor) is not None:
            raise InvalidArgumentError(operator, f"{field}.{tensor}", "a tensor", "None in a fused activation")
    return parametrize(operator, f"{field}.", desc, element)


def parametrize(operator: str, prefix: str, desc: Any, element: ElementType) -> ParametrizedActivation:
    """Check the parameters of a DML_ACTIVATION_*_OPERATOR_DESC and round them to float32.

    prefix: what error messages write before a field's name. Raises InvalidArgumentError.
    """
    row = BY_DESC[type(desc)]
    if element.pairs and not row.has_pairs:
        raise InvalidArgumentError(operator, f"{prefix}{type(desc).__name__}", element.name,
                                   "another type: this activation is not available in float64")
    return ParametrizedActivation(row, tuple(parameter(operator, prefix + name, getattr(desc, name), name in row.divisors)
                                      for name in row.fields))


def parameter(operator: str, field: str, value: object, is_divisor: bool = False) -> float:
    """Round a value to float32. Raises InvalidArgumentError unless the result is finite and, for a divisor, not 0."""
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


def check_clip(operator: str, field: str, clip: float) -> float:
    """Check a bound on the inputs of activations and round it to float32. Raises InvalidArgumentError."""
    if not isinstance(clip, numbers.Real) or not 0 <= clip <= MAX_FLOAT32:
        raise InvalidArgumentError(operator, field, shown(clip), "a finite float32, 0 or more")
    return float(np.float32(clip))


def from_onnx(operator: str, names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
              ) -> list[descs.ActivationDesc]:
    """Make descriptors of ONNX's attributes activations, activation_alpha and activation_beta (ONNX GRU-22, LSTM-22, RNN-22).

    Names are case-insensitive. Each activation that takes an alpha takes the next one of the list; the same goes for betas.
    Where a list is too short, the ONNX operators' defaults are used; values that are left over are ignored. ONNX Runtime does
    the same. Raises InvalidArgumentError for an unknown name, and for a value that is no finite float32.
    """
    left = [[(f"{attribute}[{i}]", value) for i, value in enumerate(values or ())]
            for attribute, values in (("activation_alpha", alphas), ("activation_beta", betas))]
    result = []
    for i, name in enumerate(names):
        row = BY_ONNX_NAME.get(str(name).lower())
        if row is None:
            raise InvalidArgumentError(operator, f"activations[{i}]", shown(name),
                                       "one of " + ", ".join(sorted(r.onnx_name for r in _ROWS if r.onnx_name)))
        values = [parameter(operator, *given.pop(0)) if given else default for given, default in zip(left, row.onnx_defaults)]
        result.append(row.desc(**dict(zip(row.fields, values))))
    return result


_ALLOWED = "an elementwise activation: " + ", ".join(row.operator_type.name.removeprefix("ACTIVATION_") for row in _ROWS)
