"""The problems whose plans are checked on each GPU: the benchmark's, and more cells, sizes, directions, lengths and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vkdml_lab.bench import cases as bench
from vkdml_lab.internals import (
    ELEMENT_TYPES,
    GRU,
    LSTM,
    PLAIN_PROBLEMS,
    RNN,
    ElementType,
    PlainProblem,
    Problem,
    from_desc,
    types_of,
)
from vkdml_lab.suite.support import make_desc

_CELLS = {"gru": GRU, "lstm": LSTM, "rnn": RNN}
_ELEMENTS = {element.name: element for element in ELEMENT_TYPES}
_SIXTEEN_BITS = ("float16", "bfloat16")
_LEFT_OUT = ("HiddenInitTensor", "CellMemInitTensor", "PeepholeTensor")


@dataclass(frozen=True)
class Case:
    """A recurrent layer. sizes: T, B, I, H. two_phases: a GRU with linear_before_reset = 0. ragged: rows differ in length."""

    cell: str
    sizes: tuple[int, int, int, int]
    two_phases: bool = False
    directions: int = 1
    ragged: bool = False
    element: str = "float32"

    @property
    def name(self) -> str:
        words = {"two-phases": self.two_phases, "bidirectional": self.directions == 2, "ragged": self.ragged,
                 self.element: self.element != "float32"}
        return "-".join([self.cell, "x".join(map(str, self.sizes)), *(word for word, is_on in words.items() if is_on)])

    @property
    def has_sixteen_bits(self) -> bool:
        return self.element in _SIXTEEN_BITS

    @property
    def problem(self) -> Problem:
        cell, element = _CELLS[self.cell], _ELEMENTS[self.element]
        changes: dict[str, Any] = {field: None for field in _LEFT_OUT if field in cell.inputs}
        if not self.ragged:
            changes["SequenceLengthsTensor"] = None
        if self.cell == "gru":
            changes["LinearBeforeReset"] = not self.two_phases
        return from_desc(make_desc(cell, *self.sizes, self.directions, element.data_type, **changes), element=element)


@dataclass(frozen=True)
class PlainCase:
    """An operator without a time loop that uses every feature of its kernel. kind: a key of PLAIN_PROBLEMS, such as "GEMM"."""

    kind: str
    element: ElementType

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.element.name}"

    @property
    def has_sixteen_bits(self) -> bool:
        return self.element.name in _SIXTEEN_BITS

    @property
    def problem(self) -> PlainProblem:
        problem: PlainProblem = PLAIN_PROBLEMS[self.kind](self.element)
        return problem


AnyCase = Case | PlainCase


def _of_bench(case: bench.Case) -> Case:
    return Case(case.cell, (case.steps, case.batch, case.inputs, case.hidden), not case.linear_before_reset, case.directions,
                case.ragged)


KINDS = [("gru", False), ("gru", True), ("lstm", False), ("rnn", False)]  # cell, and whether its steps have two phases
_WIDTHS = (64, 128, 256, 512, 1024, 2048)
_BATCHES = (1, 4, 16, 64)
PROJECTION = Case("gru", (64, 64, 1024, 1024))  # 4096 samples x 3072 x 1024

_EVERY: list[AnyCase] = [
    *map(_of_bench, bench.CASES),
    *(Case(cell, (100, 1, width, width), two_phases) for cell, two_phases in KINDS for width in _WIDTHS),
    *(Case("gru", (50, batch, width, width)) for batch in _BATCHES for width in _WIDTHS),
    *(Case(cell, (50, batch, 512, 512), two_phases) for cell, two_phases in KINDS for batch in (4, 64)),
    *(Case(cell, (50, 16, 256, 256), directions=2) for cell, _ in KINDS[1:]),
    *(Case(cell, (50, 32, 256, 256), two_phases, ragged=True) for cell, two_phases in KINDS),
    *(Case(cell, (50, batch, 256, 256), element=element) for element in ("float16", "bfloat16", "float64")
      for cell in _CELLS for batch in (1, 64)),
    *(Case("gru", (50, 1, width, width), element="float16") for width in (1024, 2048)),
    Case("gru", (50, 3, 70, 100), ragged=True, directions=2),  # sizes that no tile divides
    PROJECTION,
    *(PlainCase(kind, element) for kind in PLAIN_PROBLEMS for element in types_of(kind)),
]
CASES = {case.name: case for case in _EVERY}
