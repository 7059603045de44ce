"""Checking a share of the calls against the float64 reference, for those who would rather pay than trust a driver."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import numpy as np

from ...errors import COMPUTES_WRONGLY, InvalidArgumentError, VerificationError
from ...operators.correctness import differences
from ...operators.plain_problem import PlainProblem
from ...operators.problem import Problem
from ...planning.plan import Plan
from ..vulkan.gpu import Gpu


class Share:
    """A share of the calls, evenly spread, the first one among them. share: from 0 to 1; None: what VKDML_VERIFY says, or else
    0.
    """

    def __init__(self, share: float | None) -> None:
        field, given = ("verify", share) if share is not None else ("VKDML_VERIFY", os.environ.get("VKDML_VERIFY") or 0)
        try:
            self.share = float(given)
        except (TypeError, ValueError):
            self.share = math.nan
        if not 0 <= self.share <= 1:
            raise InvalidArgumentError("Device", field, repr(given), "a share of the calls, from 0 to 1")
        self._calls = 0

    def has_next(self) -> bool:
        """Whether the next call is one of them."""
        before, self._calls = self._calls - 1, self._calls + 1
        return math.floor((before + 1) * self.share) > math.floor(before * self.share)


def verify(gpu: Gpu, problem: Problem | PlainProblem, plan: Plan, memory: Mapping[str, np.ndarray]) -> None:
    """Raises VerificationError for wrong results. memory: the bytes of all tensors, as `differences` takes them."""
    wrong = differences(problem, memory)
    if wrong:
        sizes = f" with T, B, I, H = {problem.steps}, {problem.batch}, {problem.input_size}, {problem.hidden}" if isinstance(
            problem, Problem) else ""
        kernels = ", ".join(dict.fromkeys(dispatch.kernel for dispatch in plan.execute))
        raise VerificationError(f"{problem.operator} in {problem.element.name}{sizes}: {gpu.info.with_driver} computed wrongly "
                                f"with {kernels}: {'; '.join(map(str, wrong))}. {COMPUTES_WRONGLY}")
