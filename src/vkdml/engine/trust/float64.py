"""Whether a device can compute float64, of which each number is a pair of float32 numbers there."""

from __future__ import annotations

import numpy as np

from ...errors import DriverError
from ...operators import elementwise_problem
from ...operators.element_types import FLOAT64
from ...operators.header.descs import (
    DML_ACTIVATION_LINEAR_OPERATOR_DESC,
    DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC,
    DML_BUFFER_TENSOR_DESC,
    DML_TENSOR_DATA_TYPE,
)
from ...planning.plain import plan
from ..commands import Commands
from ..vulkan.gpu import Buffer, Gpu, OnceForEachGpu

_TOLERANCE = 1e-12


@OnceForEachGpu
def check_float64(gpu: Gpu) -> None:
    """Raises DriverError where float64 results would not be accurate.

    A driver that rearranges sums, or does not round them to nearest, makes results wrong from the eighth digit on. Vulkan has
    no query for that, so the first operator in float64 on a device tries it.
    """
    if not is_accurate(gpu):
        raise DriverError(f"float64: {gpu.info.name}'s driver does not keep the rounding of float32 sums and products, of "
                          "which this package makes float64. Use float32 on this device")


def is_accurate(gpu: Gpu) -> bool:
    """Whether sums, products, divisions and exponentials of numbers with all digits have all digits right."""
    x = np.random.default_rng(0).uniform(-2, 2, 64)
    tensor = DML_BUFFER_TENSOR_DESC(DataType=DML_TENSOR_DATA_TYPE.FLOAT64, Sizes=x.shape)
    for desc in (DML_ACTIVATION_LINEAR_OPERATOR_DESC(tensor, tensor, Alpha=1 / 3, Beta=0.1),
                 DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC(tensor, tensor, Alpha=1 / 3, Beta=0.7)):
        problem = elementwise_problem.from_desc(desc, FLOAT64)
        (dispatch,) = plan(problem, gpu.info).execute
        source, target = Buffer(gpu, x.nbytes), Buffer(gpu, x.nbytes)
        source.write(x)
        kernel = gpu.create_kernel(dispatch, {"InputTensor": source, "OutputTensor": target})
        commands = Commands(gpu)
        commands.upload(source)
        commands.dispatch(kernel, dispatch.push)
        commands.readback(target)
        commands.execute()
        if not np.allclose(target.read(x.shape, np.float64), problem.function(x), rtol=_TOLERANCE, atol=_TOLERANCE):
            return False
    return True
