"""Where pairs of floats can stand for float64: on which devices, and for which numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import DriverError, InvalidArgumentError
from ..planning import elementwise as planning
from ..spec import elementwise
from ..spec.descs import (
    DML_ACTIVATION_LINEAR_OPERATOR_DESC,
    DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC,
    DML_BUFFER_TENSOR_DESC,
    DML_TENSOR_DATA_TYPE,
)
from ..spec.element_types import FLOAT64
from ..spec.problem import MAX_FLOAT32
from .device import Buffer, Gpu

_TOLERANCE = 1e-12
_checked: dict[Gpu, bool] = {}


def check_pairs(gpu: Gpu) -> None:
    """Raises DriverError where float64 results would not be accurate.

    Vulkan lets no one ask. A driver that rearranges sums, or rounds them otherwise than to nearest, would give results that
    are wrong from the eighth digit on, so the first operator in float64 tries it.
    """
    if gpu not in _checked:
        _checked[gpu] = _try(gpu)
    if not _checked[gpu]:
        raise DriverError(f"float64: {gpu.info.name}'s driver does not keep the rounding of float32 sums and products, of "
                          "which this package makes float64. Use float32 on this device")


def _try(gpu: Gpu) -> bool:
    """Sums, products, divisions and exponentials of numbers with digits in all places."""
    x = np.random.default_rng(0).uniform(-2, 2, 64)
    tensor = DML_BUFFER_TENSOR_DESC(DataType=DML_TENSOR_DATA_TYPE.FLOAT64, Sizes=x.shape)
    for desc in (DML_ACTIVATION_LINEAR_OPERATOR_DESC(tensor, tensor, Alpha=1 / 3, Beta=0.1),
                 DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC(tensor, tensor, Alpha=1 / 3, Beta=0.7)):
        problem = elementwise.from_desc(desc, FLOAT64)
        (dispatch,) = planning.plan(problem, gpu.info).execute
        source, target = Buffer(gpu, x.nbytes), Buffer(gpu, x.nbytes)
        source.write(x)
        kernel = gpu.create_kernel(dispatch.kernel, dispatch.constants, [source, target], [target], dispatch.groups, 0)
        commands = gpu.create_commands()
        commands.upload(source)
        commands.dispatch(kernel, ())
        commands.readback(target)
        commands.execute()
        if not np.allclose(target.read(x.shape, np.float64), problem.function(x), rtol=_TOLERANCE, atol=_TOLERANCE):
            return False
    return True


class RangeCheck:
    """Refuses inputs, and results of finite inputs, that are too large for a float32 and so for a pair of them."""

    def __init__(self, name: str, arguments: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
        """arguments: what the arrays and the results are called in errors."""
        self._name = name
        self._arguments = arguments
        self._is_finite = True
        for field, array in arrays.items():
            finite = np.isfinite(array)
            self._is_finite = self._is_finite and bool(finite.all())
            largest = np.abs(array, where=finite, out=np.zeros_like(array)).max()
            if largest > MAX_FLOAT32:
                raise InvalidArgumentError(name, self._arguments[field], largest, _RANGE)

    def check_results(self, results: Mapping[str, np.ndarray]) -> None:
        for field, result in results.items():
            if self._is_finite and not np.isfinite(result).all():
                raise InvalidArgumentError(self._name, self._arguments[field], "numbers out of range on the way", _RANGE)


_RANGE = f"numbers up to {MAX_FLOAT32:.3g}: float64 is computed in pairs of float32 numbers"
