"""What the plain operators have in common: those without a time loop, such as an activation, GEMM or GATHER. Each has one
output, OutputTensor, which one dispatch computes, or a few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .bounded import Arithmetic, Bounded
from .checks import CheckedOperator

OUTPUT = "OutputTensor"
MOST_DIMENSIONS = 8


@dataclass(frozen=True)
class ComputedProblem(CheckedOperator, ABC):
    """A plain operator whose output is computed from floats."""

    @property
    def terms(self) -> int:
        """Number of terms in the longest sum."""
        return 2

    @abstractmethod
    def expected(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        """The output in float64, with a bound on what rounding can do to a device's. arrays: float64, in the tensors' sizes."""


@dataclass(frozen=True)
class MovedProblem(CheckedOperator, ABC):
    """A plain operator that copies some of its inputs' elements to its output, bit by bit, whatever their type."""

    @abstractmethod
    def moved(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The output. arrays: in the tensors' sizes and types, but for the elements, which may be any array of their size."""


PlainProblem = ComputedProblem | MovedProblem
