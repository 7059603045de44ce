"""Checks the descriptor of a recurrent operator and makes a Problem of it.

A problem does not depend on a device. Planning refuses sizes that a device cannot hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from . import activations, cells, checks
from .activations import MAX_FLOAT32, ParametrizedActivation, check_clip
from .cells import Cell, Loop
from .checks import CheckedOperator, Tensor, check_output_strides, check_tensors, expect_sizes, is_one_of, unwrap_operator
from .element_types import ElementType
from .header.descs import DML_RECURRENT_NETWORK_DIRECTION, DML_TENSOR_DATA_TYPE

LENGTHS = "SequenceLengthsTensor"
WEIGHTS = ("WeightTensor", "RecurrenceTensor", "BiasTensor", "PeepholeTensor")
_IN_RANGE = f"numbers up to {MAX_FLOAT32:.3g}: float64 is computed in pairs of float32 numbers"

_REVERSED = {
    DML_RECURRENT_NETWORK_DIRECTION.FORWARD: (False,),
    DML_RECURRENT_NETWORK_DIRECTION.BACKWARD: (True,),
    DML_RECURRENT_NETWORK_DIRECTION.BIDIRECTIONAL: (False, True),
}


@dataclass(frozen=True)
class Problem(CheckedOperator):
    """A recurrent operator to compute.

    steps, batch, input_size, hidden: T, B, I and H.
    reverse: an entry for each direction, True where it goes from the last step to the first.
    activations: f, g and h (as many as the cell takes) of the first direction, then of the second.
    flags: the values of the cell's flags, by DirectML's names.
    clip: bound on the inputs of activations, or None: ClipThreshold of DirectML's LSTM, the attribute clip of ONNX's operators.
    """

    cell: Cell
    steps: int
    batch: int
    input_size: int
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[ParametrizedActivation, ...]
    flags: Mapping[str, bool]
    clip: float | None = None

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {output: (initial,) for output, initial in cells.STATES.items()}

    @property
    def checked_input(self) -> str | None:
        return LENGTHS if self.has(LENGTHS) else None

    def check_values(self, memory: np.ndarray) -> None:
        """Refuse sequence lengths above T. memory: the bytes of SequenceLengthsTensor. Raises InvalidArgumentError."""
        check_lengths(self.operator, self.tensor(LENGTHS).view(memory.view(np.uint32)).reshape(-1), self.steps)

    @property
    def directions(self) -> int:
        return len(self.reverse)

    @property
    def loop(self) -> Loop:
        return self.cell.loops[self.flags.get("LinearBeforeReset", False)]

    @property
    def columns(self) -> int:
        """How many numbers R multiplies."""
        return self.hidden * self.loop.sources

    @property
    def direction(self) -> str:
        """ONNX's name of the direction: forward, reverse or bidirectional."""
        return "bidirectional" if self.directions == 2 else "reverse" if self.reverse[0] else "forward"

    def activation(self, direction: int, index: int) -> ParametrizedActivation:
        return self.activations[direction * self.cell.activations + index]

    def __str__(self) -> str:
        sizes = f"T {self.steps}, B {self.batch}, I {self.input_size}, H {self.hidden}"
        return f"{self.cell.name}: {sizes}, {self.element.name}, {self.direction}"

    def __repr__(self) -> str:  # the fields would fill a screen
        return f"<Problem {self}>"


def from_desc(desc: Any, clip: float | None = None, element: ElementType | None = None) -> Problem:
    """Check a recurrent operator's descriptor: a DML_OPERATOR_DESC, or the structure in it alone.

    clip: ONNX's attribute; if the descriptor uses its ClipThreshold, that counts instead.
    element: the type of all tensors but the lengths; by default InputTensor's, which must be one that DirectML takes.
    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    desc = unwrap_operator(desc)
    name = type(desc).__name__
    cell = cells.BY_DESC[type(desc)]
    if not is_one_of(desc.Direction, _REVERSED):
        raise InvalidArgumentError(name, "Direction", shown(desc.Direction),
                                   "one of " + ", ".join(one.name for one in _REVERSED))
    reverse = _REVERSED[desc.Direction]
    element, tensors = check_tensors(name, desc, cell.tensors, cell.required, element, (4,), WEIGHTS)
    x, w, r = (tensor.sizes[1:] for field in cell.required if (tensor := tensors[field]))
    sizes = cell.sizes(x, w, r, len(reverse))
    for field, formulas in cell.tensors.items():
        if tensor := tensors[field]:
            expect_sizes(name, f"{field}.Sizes", tensor.sizes, formulas, sizes)
    for field in cell.outputs:
        check_output_strides(name, field, tensors[field])
    if all(tensors[field] is None for field in cell.outputs):
        raise InvalidArgumentError(name, " and ".join(cell.outputs), "None", "at least one output")
    if _check_bool(name, "UseClipThreshold", getattr(desc, "UseClipThreshold", False)):
        clip = check_clip(name, "ClipThreshold", desc.ClipThreshold)
    flags = {flag: _check_bool(name, flag, getattr(desc, flag)) for flag in cell.flags}
    return replace(problem_of(cell, element, sizes, (), (), flags, reverse), operator=name, tensors=tensors,
                   activations=_check_activations(name, cell, desc, len(reverse), element),
                   clip=None if clip is None else check_clip(name, "clip", clip))


def problem_of(cell: Cell, element: ElementType, sizes: Mapping[str, int], fields: Collection[str],
               activations: Sequence[ParametrizedActivation], flags: Mapping[str, bool] = {},
               reverse: tuple[bool, ...] = (False,), strides: Mapping[str, Sequence[int]] = {}) -> Problem:
    """Make a problem of the package's own, without a descriptor.

    sizes: the values of T, B, I, H and D. fields: the tensors. activations: of one direction; all directions have them.
    flags: those that are True. strides: by field, of tensors that are not packed.
    Raises InvalidArgumentError for a tensor of more than 4 GiB.
    """
    tensors: dict[str, Tensor | None] = dict.fromkeys(cell.tensors)
    for field in fields:
        shape = tuple(checks.evaluate(formula, sizes) for formula in cell.tensors[field])
        data_type, itemsize = (DML_TENSOR_DATA_TYPE.UINT32, 4) if field == LENGTHS else (element.data_type, element.itemsize)
        steps = tuple(strides.get(field, checks.packed_strides(shape)))
        tensors[field] = tensor = checks.least_tensor(data_type, shape, steps, itemsize)
        checks.check_bytes(cell.name, field, tensor.size_in_bytes)
    return Problem(
        operator=cell.name, element=element, tensors=tensors, inputs=tuple(cell.inputs), outputs=tuple(cell.outputs),
        weights=WEIGHTS, cell=cell, steps=sizes["T"], batch=sizes["B"], input_size=sizes["I"], hidden=sizes["H"],
        reverse=reverse, activations=tuple(activations) * len(reverse), flags={**dict.fromkeys(cell.flags, False), **flags})


def check_lengths(operator: str, lengths: np.ndarray, steps: int) -> None:
    """Refuse a sequence length below 0 or above T, naming the row."""
    wrong = (lengths < 0) | (lengths > steps)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidArgumentError(operator, f"sequence length of row {row}", int(lengths[row]), f"0 to T = {steps}")


class RangeCheck:
    """Checks the range of float64 numbers, each of which devices compute as a pair of float32 numbers: refuses inputs out of
    range, and results of finite inputs that are not finite, as something on the way was out of range.

    name: of the operator, for errors. names: of the arrays and results, for errors, by their keys. arrays: the inputs, of any
    shapes and strides.

    Raises InvalidArgumentError for an input out of range.
    """

    def __init__(self, name: str, names: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
        self._name = name
        self._names = names
        self._is_finite = True
        for key, array in arrays.items():
            if array.size == 0:
                continue
            largest = max(abs(array.max()), abs(array.min()))  # unlike isfinite, these make no copy of the array
            if not np.isfinite(largest):
                self._is_finite = False
                largest = np.abs(array).max(where=np.isfinite(array), initial=0)
            if largest > MAX_FLOAT32:
                raise InvalidArgumentError(name, names[key], largest, _IN_RANGE)

    def check_results(self, results: Mapping[str, np.ndarray]) -> None:
        """Refuse results out of range. results: by key. Raises InvalidArgumentError."""
        for key, result in results.items():
            if self._is_finite and not np.isfinite(result).all():
                raise InvalidArgumentError(self._name, self._names[key], "numbers out of range on the way", _IN_RANGE)


def _check_bool(operator: str, field: str, value: object) -> bool:
    if not isinstance(value, int | np.integer | np.bool_):
        raise InvalidArgumentError(operator, field, shown(value), "True or False, or a whole number as in C, where 0 is false")
    return bool(value)


def _check_activations(operator: str, cell: Cell, desc: Any, directions: int, element: ElementType
                       ) -> tuple[ParametrizedActivation, ...]:
    expected = cell.activations * directions
    if not isinstance(desc.ActivationDescs, tuple):
        raise InvalidArgumentError(operator, "ActivationDescs", shown(desc.ActivationDescs), f"a list of {expected}")
    count = len(desc.ActivationDescs) if desc.ActivationDescCount is None else desc.ActivationDescCount
    if not isinstance(count, int | np.integer) or count != expected or len(desc.ActivationDescs) != expected:
        raise InvalidArgumentError(operator, "ActivationDescs", f"{len(desc.ActivationDescs)} (ActivationDescCount "
                                   f"{shown(count)})",
                                   f"{expected}: {cell.activations} for each of {directions} directions")
    return tuple(activations.fuse(operator, f"ActivationDescs[{i}]", activation, element)
                 for i, activation in enumerate(desc.ActivationDescs))
