"""A plan's dispatches -> commands."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from ..planning.dispatches import Dispatch
from ..planning.plan import Plan
from . import kernels
from .buffers import Bound
from .commands import Commands
from .device import Gpu, Kernel
from .fallback import Attempts, Fallback


def storage_buffers(plan: Plan) -> dict[str, int]:
    """How many each of its kernels binds, by name. A tensor that is left out takes one too."""
    names = {dispatch.kernel for dispatch in plan.initialize + plan.execute + plan.fallback}
    return {name: len(kernels.load(name).interface.bindings) for name in names}


def record_execution(gpu: Gpu, commands: Commands, plan: Plan, buffers: Mapping[str, Bound], attempts: Attempts) -> None:
    """Record an execution whose weights are packed. buffers: of the tensors, by field, and of the plan, by name. attempts: at
    the plan.
    """
    if plan.gave_up is None:
        record_dispatches(gpu, commands, plan.execute, buffers)
        return
    name, word = plan.gave_up
    writes = frozenset(buffers[name] for dispatch in plan.execute + plan.fallback for name in dispatch.writes)
    commands.call(Fallback(
        gpu, lambda commands: record_dispatches(gpu, commands, plan.execute, buffers), (buffers[name].buffer, word),
        lambda commands: record_dispatches(gpu, commands, plan.fallback, buffers), attempts, commands.lease).execute, writes)


def record_dispatches(gpu: Gpu, commands: Commands, dispatches: Sequence[Dispatch], buffers: Mapping[str, Bound]) -> None:
    made: dict[Hashable, Kernel] = {}  # one for all dispatches that differ in push constants only
    for dispatch in dispatches:
        key = (dispatch.kernel, dispatch.groups, id(dispatch.constants), *dispatch.buffers.items())
        if key not in made:
            made[key] = gpu.create_kernel(dispatch, buffers, lease=commands.lease)
        commands.dispatch(made[key], dispatch.push, dispatch.starts_submission)
