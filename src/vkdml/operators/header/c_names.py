"""DirectML.h's constants and its function: enumerations' members under their names in C, limits, and the size of a tensor.

Sources: DirectML.h; DirectML's page "DML_BUFFER_TENSOR_DESC structure" for DMLCalcBufferTensorSize.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag

from ...errors import InvalidArgumentError, shown
from ..checks import MINIMUM_ALIGNMENT, integers, is_one_of, least_size, packed_strides
from ..element_types import ITEMSIZES
from . import descs, device_descs
from .descs import DML_TENSOR_DATA_TYPE

# Prefixes of members' names in C, if they differ from the enumeration's name
_PREFIXES = {"DML_TENSOR_FLAGS": "DML_TENSOR_FLAG", "DML_EXECUTION_FLAGS": "DML_EXECUTION_FLAG",
             "DML_OPERATOR_TYPE": "DML_OPERATOR", "DML_FEATURE_LEVEL": "DML_FEATURE"}
_ENUMERATIONS = [found for module in (descs, device_descs) for name in module.NAMES
                 if issubclass(found := getattr(module, name), IntEnum | IntFlag)]

CONSTANTS: dict[str, int] = {
    "DML_TENSOR_DIMENSION_COUNT_MAX": 5,
    "DML_TENSOR_DIMENSION_COUNT_MAX1": 8,
    "DML_TEMPORARY_BUFFER_ALIGNMENT": 256,
    "DML_PERSISTENT_BUFFER_ALIGNMENT": 256,
    "DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT": MINIMUM_ALIGNMENT,
    **{f"{_PREFIXES.get(kind.__name__, kind.__name__)}_{name}": member for kind in _ENUMERATIONS
       for name, member in kind.__members__.items()},
}


def DMLCalcBufferTensorSize(dataType: DML_TENSOR_DATA_TYPE, dimensionCount: int, sizes: Sequence[int],  # noqa: N802 (C's name)
                            strides: Sequence[int] | None = None) -> int:
    """Compute a tensor's smallest TotalTensorSizeInBytes: up to the end of its last element, rounded up to 4 bytes.

    strides: in elements; None is a packed tensor. Raises InvalidArgumentError for UNKNOWN, and for other numbers of sizes or
    strides than dimensionCount.
    """
    name = "DMLCalcBufferTensorSize"
    if not is_one_of(dataType, list(ITEMSIZES)):
        raise InvalidArgumentError(name, "dataType", shown(dataType), "a DML_TENSOR_DATA_TYPE but UNKNOWN")
    found = integers(name, "sizes", sizes, 1)
    steps = packed_strides(found) if strides is None else integers(name, "strides", strides, 0)
    for field, given in (("sizes", found), ("strides", steps)):
        if len(given) != dimensionCount:
            raise InvalidArgumentError(name, field, f"{len(given)} numbers", f"{shown(dimensionCount)}, the dimensionCount")
    return least_size(found, steps, ITEMSIZES[DML_TENSOR_DATA_TYPE(dataType)])
