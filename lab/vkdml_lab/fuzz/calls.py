"""The fuzzer's calls as plain data: the operator, the face (a way to call vkdml), the numbers, and the broken arguments.

A call can be stored as JSON and made again from it; regressions.json keeps calls that failed. Compiling is a hundred times
slower than calling, so a run draws its operators from a small palette, and everything else freely.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from vkdml.operators import element_types, problem
from vkdml.operators.activations import BY_DESC, BY_TYPE
from vkdml.operators.arguments import onnx_shape
from vkdml.operators.cells import Cell
from vkdml.operators.element_types import ElementType
from vkdml.operators.header.descs import DML_OPERATOR_TYPE, DML_RECURRENT_NETWORK_DIRECTION
from vkdml.operators.problem import WEIGHTS, Problem
from vkdml_lab.suite.support import CELLS, DTYPES, make_desc, random_arrays

DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}
ELEMENTS = {element.name: element for element in element_types.ALL}
SIZES = (1, 2, 3, 5, 8, 17, 33)
OPTIONAL = ("BiasTensor", "HiddenInitTensor", "CellMemInitTensor", "SequenceLengthsTensor", "PeepholeTensor")
SPECIAL = (None, None, None, None, None, np.nan, np.inf, -np.inf)


@dataclass(frozen=True)
class Operator:
    """The operator that a call compiles. activations: for each, its name in DML_OPERATOR_TYPE without ACTIVATION_, and its
    parameters. flag: LinearBeforeReset or CoupleInputForget. given: the fields of the optional inputs that it has.
    """

    cell: str
    inputs: int
    hidden: int
    direction: str
    activations: tuple[tuple[Any, ...], ...]
    element: str
    flag: bool = False
    clip: float | None = None
    given: tuple[str, ...] = ()

    @property
    def row(self) -> Cell:
        return next(cell for cell in CELLS if cell.name == self.cell)

    @property
    def type(self) -> ElementType:
        return ELEMENTS[self.element]

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def flags(self) -> dict[str, bool]:
        return dict.fromkeys(self.row.flags, self.flag)

    def descs(self) -> list[Any]:
        rows = [(BY_TYPE[DML_OPERATOR_TYPE[f"ACTIVATION_{name}"]], values) for name, *values in self.activations]
        return [row.desc(**dict(zip(row.fields, values))) for row, values in rows]

    @property
    def is_onnx(self) -> bool:
        """Whether ONNX has the operator's activations, with all of their parameters."""
        rows = [BY_DESC[type(desc)] for desc in self.descs()]
        return all(row.onnx_name and len(row.onnx_defaults) == len(row.fields) for row in rows)


@dataclass(frozen=True)
class Call:
    """One call. face: key in FACES. layout: ONNX's. growth: multiplies the recurrent weights. special: a NaN or infinity for x.
    strided: whether arrays are views with gaps. breaks: pairs of indices, of an argument and of a wrong value for it.
    """

    face: str
    operator: Operator
    steps: int
    batch: int
    layout: int = 0
    growth: float = 1.0
    special: float | None = None
    strided: bool = False
    seed: int = 0
    breaks: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Call:
        given = json.loads(text)
        operator = given["operator"]
        activations = tuple(map(tuple, operator["activations"]))
        made = Operator(**{**operator, "activations": activations, "given": tuple(operator["given"])})
        return Call(**{**given, "operator": made, "breaks": tuple(map(tuple, given["breaks"]))})

    @cached_property
    def desc(self) -> Any:
        """The call's DirectML descriptor. Its tensors have no gaps."""
        operator = self.operator
        cell = operator.row
        left_out = dict.fromkeys(field for field in OPTIONAL if field in cell.inputs and field not in operator.given)
        direction = DML_RECURRENT_NETWORK_DIRECTION(DIRECTIONS[operator.direction])
        return make_desc(cell, self.steps, self.batch, operator.inputs, operator.hidden, operator.directions,
                         operator.type.data_type, ActivationDescs=operator.descs(), Direction=direction, **operator.flags,
                         **left_out)

    @cached_property
    def problem(self) -> Problem:
        return problem.from_desc(self.desc, self.operator.clip, self.operator.type)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Inputs by DirectML's field, in DirectML's sizes. Weights do not depend on T and B, so calls can share packed ones."""
        return dict(_arrays(self.operator, self.steps, self.batch, self.growth, self.special, self.seed))

    @property
    def onnx_arrays(self) -> dict[str, np.ndarray]:
        """The inputs by DirectML's field, but in ONNX's shapes and the call's layout, with gaps if `strided`."""
        return {field: self._onnx(field, array) for field, array in self.arrays.items()}

    def _onnx(self, field: str, array: np.ndarray) -> np.ndarray:
        operator, cell = self.operator, self.operator.row
        sizes = {"T": self.steps, "B": self.batch, "I": operator.inputs, "H": operator.hidden, "D": operator.directions}
        shaped = array.reshape(onnx_shape(cell, field, 0, sizes))
        if self.layout:
            shaped = np.moveaxis(shaped, _batch_axis(cell.inputs[field]), 0)
        if field == "SequenceLengthsTensor":
            return shaped.astype(np.int32)
        if not self.strided:
            return np.ascontiguousarray(shaped)
        return np.repeat(shaped, 2, axis=-1)[..., ::2]

    def from_onnx(self, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return results, by field, in DirectML's sizes. results: by field, in ONNX's shapes and the call's layout."""
        cell = self.operator.row
        if self.layout:
            results = {field: np.moveaxis(array, 0, _batch_axis(cell.outputs[field])) for field, array in results.items()}
        return {field: array.reshape(self.problem.tensor(field).sizes) for field, array in results.items()}


@lru_cache(maxsize=256)
def _arrays(operator: Operator, steps: int, batch: int, growth: float, special: float | None, seed: int) -> dict[str, np.ndarray]:
    """Make a call's inputs, by field. A cache keeps them, as they are used three times: to break, run and judge the call."""
    given = [random_arrays(Call("", operator, *sizes).desc, np.random.default_rng(seed), operator.type)
             for sizes in ((steps, batch), (1, 1))]
    arrays = given[0] | {field: array for field, array in given[1].items() if field in WEIGHTS}
    arrays["RecurrenceTensor"] *= arrays["RecurrenceTensor"].dtype.type(growth)
    if special is not None:
        arrays["InputTensor"][0, seed % steps, seed % batch, 0] = special
    return arrays


def _batch_axis(formulas: Iterable[str]) -> int:
    """Return B's axis in an array of ONNX's layout 0, or 0 if it has no B. formulas: the array's dimensions in DirectML."""
    dims = [formula for formula in formulas if formula != "1"]
    return dims.index("B") if "B" in dims else 0


FEW: dict[str, Any] = {"steps": range(2, 9), "rows": range(2, 7)}  # for tests that share compiled kernels


def palette(seed: int, count: int) -> list[Operator]:
    """Draw `count` operators at random. The simplest come first, as hypothesis shrinks failing calls towards the first."""
    rng = np.random.default_rng(seed)
    drawn = [_operator(rng, CELLS[(seed + index) % len(CELLS)]) for index in range(count)]
    return sorted(drawn, key=lambda operator: operator.hidden * operator.inputs * operator.directions)


def _operator(rng: np.random.Generator, cell: Cell) -> Operator:
    element = element_types.ALL[rng.choice(len(element_types.ALL), p=[0.55, 0.2, 0.15, 0.1])]
    direction = str(rng.choice(list(DIRECTIONS)))
    count = cell.activations * (2 if direction == "bidirectional" else 1)
    kind = rng.random()  # below 0.4: default activations; below 0.7: ONNX's; else any
    rows = [row for row in BY_DESC.values() if (row.has_pairs or not element.pairs) and (kind > 0.7 or row.onnx_name)]
    chosen = [rows[rng.integers(len(rows))] for _ in range(count)] if kind > 0.4 else [
        BY_DESC[type(desc)] for desc in make_desc(cell, d=count // cell.activations).ActivationDescs]
    activations = tuple((row.operator_type.name.removeprefix("ACTIVATION_"),
                         *(round(float(rng.uniform(0.3, 1.2)), 3) for _ in row.fields)) for row in chosen)
    inputs, hidden = (int(size) for size in rng.choice(SIZES, 2))
    return Operator(cell.name, inputs, hidden, direction, activations, element.name, bool(cell.flags) and bool(rng.integers(2)),
                    round(float(rng.uniform(0.05, 1.5)), 3) if rng.random() < 0.2 else None,
                    tuple(field for field in OPTIONAL if field in cell.inputs and rng.random() < 0.6))


@st.composite
def calls(draw: st.DrawFn, operators: Sequence[Operator], faces: Mapping[str, Any], is_broken: bool | None = None,
          steps: Sequence[int] = range(1, 13), rows: Sequence[int] = range(1, 7), seeds: Sequence[int] = range(1000)) -> Call:
    """Draw a call of one of the operators by a face that can run it. faces: by name. is_broken: whether it is broken; None:
    either. steps, rows, seeds: values to draw T, B and the seed of the arrays from.
    """
    operator = draw(st.sampled_from(operators))
    face = draw(st.sampled_from([name for name, face in faces.items() if face.takes(operator)]))
    pairs = st.tuples(st.integers(0, 99), st.integers(0, 99))
    least, most = {None: (0, 2), False: (0, 0), True: (1, 3)}[is_broken]
    call = Call(face, operator, draw(st.sampled_from(steps)), draw(st.sampled_from(rows)),
                layout=draw(st.integers(0, 1)), growth=draw(st.sampled_from((1.0, 0.3, 3.0))),
                special=draw(st.sampled_from(SPECIAL)), strided=draw(st.booleans()), seed=draw(st.sampled_from(seeds)),
                breaks=tuple(draw(st.lists(pairs, min_size=least, max_size=most))))
    call = call if faces[face].has_layout else replace(call, layout=0)
    return replace(call, breaks=()) if faces[face].keeps_wrong else call


def dtype_of(call: Call) -> np.dtype:
    return DTYPES[call.operator.element]
