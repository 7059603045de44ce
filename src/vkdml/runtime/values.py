"""Inputs whose values are checked before each execution: sequence lengths and indices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..spec.checks import CheckedOperator
from .buffers import Bound
from .commands import Commands


def check_values_before(commands: Commands, problem: CheckedOperator, buffers: Mapping[str, Bound]) -> None:
    """Check sequence lengths and indices, if an operator has any, at each execution. Of those that a dispatch before it writes
    the host knows nothing: the kernels bound them.
    """
    field = problem.checked_input
    if field is None or commands.writes(buffers[field]):
        return
    size, memory = problem.tensor(field).size_in_bytes, buffers[field]
    commands.before_execute(lambda: problem.check_values(memory.read((size,), np.uint8)))
