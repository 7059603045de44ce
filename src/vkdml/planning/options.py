"""The options that a caller may force in a plan, and a table of the values that they may have and how tilings show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..errors import InvalidArgumentError, shown

Schedule = Literal["sequence", "stepped", "persistent"]
SCHEDULES = SEQUENCE, STEPPED, PERSISTENT = get_args(Schedule)
WORKSPACE_BYTES = 256 * 2**20
# Smaller workspaces for when memory is short, the largest first. They are few, so that problems share compiled kernels
WORKSPACES = tuple(WORKSPACE_BYTES >> shift for shift in range(2, 14, 2))


@dataclass(frozen=True)
class Options:
    """Forces choices of the plan, for tests and measurements. None leaves the choice to the plan.

    A forced option is kept, or InvalidArgumentError names it. If persistent parts give up waiting, the fallback has the
    forced kernel and rows, but its own schedule.

    OPTIONS lists the values that each option may have.

    schedule: sequence, stepped or persistent. float64 has no persistent, and CPU drivers have it only when forced.
    parts: workgroups that share the units: at least 2 with stepped and persistent, else 1. On a GPU, 1 if a workgroup has room
    for all units, unless it is forced.
    fused: multiply the input in the time loop (not in the kernels for GPUs, which always project it).
    lanes: use the kernels that shuffle (not persistent).
    resident: use those of them that keep the recurrent weights in private memory (sequence).
    rows: batch rows of a tile: 1 with float64. Some drivers cannot compile many.
    units_at_once: units that an invocation computes together; 1 without lanes.
    register_loads, shared_loads: on a GPU, how many loads of 16 bytes of each gate's recurrent weights an invocation keeps in
    registers, and in shared memory, for a whole dispatch; 0 if a workgroup computes its units in several turns.
    workgroup: invocations of the time loop's workgroups: whole subgroups with lanes; on a GPU those for a multiple of 8 units,
    where H decides how many each unit has.
    shared_state: keep h in shared memory: with float64 and resident in sequence; on a GPU, unless a tile of h has no room
    there.
    chunk_steps: most time steps that a dispatch runs.
    workspace_bytes: most memory for the projection's result; more time steps than fit go through in chunks. Unless it is
    forced, one step may have more.
    """

    schedule: Schedule | None = None
    parts: int | None = None
    fused: bool | None = None
    lanes: bool | None = None
    resident: bool | None = None
    rows: int | None = None
    units_at_once: int | None = None
    workgroup: int | None = None
    shared_state: bool | None = None
    register_loads: int | None = None
    shared_loads: int | None = None
    chunk_steps: int | None = None
    workspace_bytes: int = WORKSPACE_BYTES

    def __post_init__(self) -> None:
        """Raises InvalidArgumentError for values that no device and no problem could have."""
        for name, (values, _) in OPTIONS.items():
            value = getattr(self, name)
            kind = type(values[0])
            if isinstance(value, int | np.integer | np.bool_):
                value = int(value)  # a range searches anything else one by one
            if value is not None and not (isinstance(value, str if kind is str else int) and value in values):
                allowed = (f"a whole number from {values[0]} to {values[-1]}" if isinstance(values, range)
                           else "True, False or None" if values is _BOOLS else "one of " + ", ".join(values))
                raise InvalidArgumentError("Options", name, shown(value), allowed)
            object.__setattr__(self, name, None if value is None else kind(value))
        if self.parts == 1 and self.schedule in (STEPPED, PERSISTENT):
            raise InvalidArgumentError("Options", "parts", 1, f"at least 2 for the schedule {self.schedule}")


class Option(NamedTuple):
    """values: those allowed besides None. of_tiling: reads a tiling's value; None if the option is a bound that all keep."""

    values: Sequence[Any]
    of_tiling: Callable[[Any], Any] | None = None


_BOOLS = (False, True)

# A family without an attribute counts as having the default that getattr is given here
OPTIONS = {
    "schedule": Option(SCHEDULES, lambda tiling: tiling.loop.schedule),
    "parts": Option(range(1, 2**16 + 1), lambda tiling: tiling.loop.parts),
    "fused": Option(_BOOLS, lambda tiling: tiling.projection is None),
    "lanes": Option(_BOOLS, lambda tiling: tiling.loop.lanes > 1),
    "resident": Option(_BOOLS, lambda tiling: getattr(tiling.loop, "resident", False)),
    "rows": Option(range(1, 32 + 1), lambda tiling: tiling.loop.rows),  # compilers take minutes for more rows or units
    "units_at_once": Option(range(1, 8 + 1), lambda tiling: tiling.loop.units_at_once),
    "workgroup": Option(range(1, 2**31 + 1), lambda tiling: tiling.loop.workgroup),
    "shared_state": Option(_BOOLS, lambda tiling: tiling.loop.shared_state),
    "register_loads": Option(range(2**16 + 1), lambda tiling: getattr(tiling.loop, "register_loads", 0)),
    "shared_loads": Option(range(2**16 + 1), lambda tiling: getattr(tiling.loop, "shared_loads", 0)),
    "chunk_steps": Option(range(1, 2**31 + 1)),
    "workspace_bytes": Option(range(1, 2**62 + 1)),
}


def forced(options: Options) -> dict[str, Any]:
    """Return the options that are not left to the plan, by name."""
    return {field.name: getattr(options, field.name) for field in fields(Options)
            if getattr(options, field.name) != field.default}


def forces_bounds_only(options: Options) -> bool:
    """Whether only bounds are forced, which every tiling keeps."""
    return all(OPTIONS[name].of_tiling is None for name in forced(options))


def has_all(tiling: Any, options: Options) -> bool:
    """Whether a tiling has the values of all forced options."""
    return all(of_tiling is None or getattr(options, name) in (None, of_tiling(tiling))
               for name, (_, of_tiling) in OPTIONS.items())


def left_values(name: str, tilings: Iterable[Any]) -> str:
    """Write the values that an option has in these tilings, for an error message."""
    of_tiling = OPTIONS[name].of_tiling
    if of_tiling is None:
        least = min(tiling.projection.step_bytes for tiling in tilings if tiling.projection)
        return f"at least {least}, the projection of one time step,"
    return " or ".join(map(repr, sorted({of_tiling(tiling) for tiling in tilings})))
