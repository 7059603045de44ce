"""The answers of DirectML's IDMLDevice::CheckFeatureSupport. Source: DirectML's page "DirectML feature level history"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidArgumentError, shown
from .checks import is_count, is_one_of
from .element_types import ITEMSIZES
from .header import device_descs as header
from .header.descs import DML_TENSOR_DATA_TYPE

# All that this level says of recurrent operators and activations is here. The next level adds integers, for example.
_HIGHEST = header.DML_FEATURE_LEVEL.LEVEL_5_0


def check_support(feature: header.DML_FEATURE, query: Any) -> Any:
    """Answer a query of the structure that belongs to the feature. It depends on no device.

    Raises InvalidArgumentError for another feature or structure, for levels that DirectML does not have, and where none of
    those asked for is supported.
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
    if not is_one_of(query.DataType, list(DML_TENSOR_DATA_TYPE)):
        raise InvalidArgumentError(type(query).__name__, "DataType", shown(query.DataType), "a DML_TENSOR_DATA_TYPE")
    return header.DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT(query.DataType in ITEMSIZES)


_ANSWERS: dict[header.DML_FEATURE, tuple[type, Callable[[Any], Any]]] = {
    header.DML_FEATURE.TENSOR_DATA_TYPE_SUPPORT: (header.DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT, _has_data_type),
    header.DML_FEATURE.FEATURE_LEVELS: (header.DML_FEATURE_QUERY_FEATURE_LEVELS, _highest_level),
}
