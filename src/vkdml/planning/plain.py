"""The plan of an operator without a time loop: its dispatches, and nothing to pack or to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..operators.arithmetic import ArithmeticProblem
from ..operators.copy_problem import CopyProblem
from ..operators.elementwise_problem import ElementwiseProblem
from ..operators.gather import GatherProblem
from ..operators.gemm_problem import GemmProblem
from ..operators.plain_problem import PlainProblem
from .copies import of_copy, of_gather
from .device_info import DeviceInfo
from .dispatches import Dispatch
from .elementwise import of_arithmetic, of_function
from .gemm import of_gemm
from .plan import Plan, check_limits

_DISPATCHES: dict[type[PlainProblem], Callable[[Any, DeviceInfo], tuple[Dispatch, ...]]] = {
    ElementwiseProblem: of_function,
    ArithmeticProblem: of_arithmetic,
    CopyProblem: of_copy,
    GatherProblem: of_gather,
    GemmProblem: of_gemm,
}


def plan(problem: PlainProblem, info: DeviceInfo) -> Plan:
    """Raises InvalidArgumentError for what the device cannot hold."""
    built = Plan(initialize=(), execute=_DISPATCHES[type(problem)](problem, info), internal={})
    check_limits(problem, info, built)
    return built
