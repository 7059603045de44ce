"""All operators: one table, the check of each structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import activations, cells, copy_problem, plain_problem, problem
from .checks import unwrap_operator
from .header import descs
from .plain_problem import PlainProblem
from .problem import Problem

CHECKS: dict[type[Any], Callable[[Any], Problem | PlainProblem]] = {
    **dict.fromkeys(cells.BY_DESC, problem.from_desc),
    **dict.fromkeys(activations.BY_DESC, plain_problem.elementwise),
    **dict.fromkeys(plain_problem.OPERATIONS, plain_problem.arithmetic),
    descs.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC: copy_problem.identity,
    descs.DML_GEMM_OPERATOR_DESC: plain_problem.gemm,
    descs.DML_JOIN_OPERATOR_DESC: copy_problem.join,
    descs.DML_SLICE_OPERATOR_DESC: copy_problem.slice_of,
    descs.DML_SLICE1_OPERATOR_DESC: copy_problem.slice1_of,
    descs.DML_GATHER_OPERATOR_DESC: copy_problem.gather,
}


def from_desc(desc: Any) -> Problem | PlainProblem:
    """Check an operator's structure, or the DML_OPERATOR_DESC around it.

    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    inner = unwrap_operator(desc)
    return CHECKS[type(inner)](inner)
