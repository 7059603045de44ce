"""All operators: one table with the check of each structure; and which of DirectML's features they amount to.

Source of the features: DirectML's page "DirectML feature level history".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidArgumentError, shown
from . import activations, cells, copy_problem, plain_problem, problem
from .checks import is_count, is_one_of, unwrap_operator
from .element_types import ITEMSIZES
from .header import descs
from .header import device_descs as header
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


# DirectML's IDMLDevice::CheckFeatureSupport

# The highest level whose recurrent operators and activations are all here. The next level adds integers, for example.
_HIGHEST = header.DML_FEATURE_LEVEL.LEVEL_5_0


def check_support(feature: header.DML_FEATURE, query: Any) -> Any:
    """Answer a DML_FEATURE_QUERY_* structure, which must be the feature's. The answer is the same for all devices.

    Raises InvalidArgumentError for an unknown feature, structure or level, and if no level that is asked for is supported.
    """
    name = "check_feature_support"
    if not is_one_of(feature, list(_ANSWERS)):
        raise InvalidArgumentError(name, "feature", shown(feature), "one of " + ", ".join(known.name for known in _ANSWERS))
    structure, answer = _ANSWERS[header.DML_FEATURE(feature)]
    if not isinstance(query, structure):
        raise InvalidArgumentError(name, "query", type(query).__name__, structure.__name__)
    return answer(query)


def _highest_level(query: header.DML_FEATURE_QUERY_FEATURE_LEVELS) -> header.DML_FEATURE_DATA_FEATURE_LEVELS:
    name, field, levels = type(query).__name__, "RequestedFeatureLevels", query.RequestedFeatureLevels
    if not isinstance(levels, list | tuple) or not all(is_one_of(level, list(header.DML_FEATURE_LEVEL)) for level in levels):
        raise InvalidArgumentError(name, field, shown(levels), "a list of DML_FEATURE_LEVEL")
    if not is_count(query.RequestedFeatureLevelCount, len(levels)):
        raise InvalidArgumentError(name, "RequestedFeatureLevelCount", shown(query.RequestedFeatureLevelCount),
                                   f"{len(levels)}, the number of levels")
    supported = [level for level in levels if level <= _HIGHEST]
    if not supported:
        raise InvalidArgumentError(name, field, shown(levels), f"at least one up to DML_FEATURE_{_HIGHEST.name}")
    return header.DML_FEATURE_DATA_FEATURE_LEVELS(header.DML_FEATURE_LEVEL(max(supported)))


def _has_data_type(query: header.DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT) -> Any:
    if not is_one_of(query.DataType, list(descs.DML_TENSOR_DATA_TYPE)):
        raise InvalidArgumentError(type(query).__name__, "DataType", shown(query.DataType), "a DML_TENSOR_DATA_TYPE")
    return header.DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT(query.DataType in ITEMSIZES)


_ANSWERS: dict[header.DML_FEATURE, tuple[type, Callable[[Any], Any]]] = {
    header.DML_FEATURE.TENSOR_DATA_TYPE_SUPPORT: (header.DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT, _has_data_type),
    header.DML_FEATURE.FEATURE_LEVELS: (header.DML_FEATURE_QUERY_FEATURE_LEVELS, _highest_level),
}
