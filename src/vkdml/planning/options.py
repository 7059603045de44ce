"""What a caller may force in a plan."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidArgumentError

SEQUENCE, STEPPED, PERSISTENT = "sequence", "stepped", "persistent"
SCHEDULES = (SEQUENCE, STEPPED, PERSISTENT)
WORKSPACE_BYTES = 256 * 2**20
_MOST_FORCED_ROWS, _MOST_FORCED_UNITS = 32, 8  # compilers take minutes over more


@dataclass(frozen=True)
class Options:
    """What to force instead of what the plan would choose; None leaves the choice. For tests and measurements.

    schedule: one of SCHEDULES. parts: workgroups that share a tile's units (stepped and persistent, 2 at least). fused:
    multiply the input in the loop. lanes: use the subgroup-shuffle kernels. row_lanes: the ones among them whose invocations
    hold rows, whole subgroups of them, and not units. resident: the ones whose recurrent weights stay in private memory (not
    stepped). projection_row_lanes: the input's part of the gates by invocations that hold rows (not fused; always with
    row_lanes). rows: batch rows of a tile. units_at_once: units that an invocation computes together. workgroup: invocations (a
    multiple of the subgroup size with lanes). shared_state: keep h in shared memory (not with parts, and with lanes only where
    weights are resident). chunk_steps: most time steps a dispatch runs. workspace_bytes: bound on the memory for the input's
    part of the gates; more time steps than fit go through in chunks.
    """

    schedule: str | None = None
    parts: int | None = None
    fused: bool | None = None
    lanes: bool | None = None
    row_lanes: bool | None = None
    resident: bool | None = None
    projection_row_lanes: bool | None = None
    rows: int | None = None
    units_at_once: int | None = None
    workgroup: int | None = None
    shared_state: bool | None = None
    chunk_steps: int | None = None
    workspace_bytes: int = WORKSPACE_BYTES


def check_options(options: Options) -> None:
    if options.schedule not in (None, *SCHEDULES):
        raise InvalidArgumentError("compile_operator", "options.schedule", repr(options.schedule),
                                   "one of " + ", ".join(SCHEDULES))
    for name in ("lanes", "row_lanes", "resident", "fused", "shared_state", "projection_row_lanes"):
        value = getattr(options, name)
        if value not in (None, False, True):
            raise InvalidArgumentError("compile_operator", f"options.{name}", repr(value), "True, False or None")
    for name, most in (("rows", _MOST_FORCED_ROWS), ("units_at_once", _MOST_FORCED_UNITS), ("parts", 2**16),
                       ("workgroup", 2**31), ("chunk_steps", 2**31), ("workspace_bytes", 2**62)):
        value = getattr(options, name)
        if value is not None and not (isinstance(value, int) and 1 <= value <= most):
            raise InvalidArgumentError("compile_operator", f"options.{name}", repr(value), f"a whole number from 1 to {most}")
    if options.parts == 1 and options.schedule in (STEPPED, PERSISTENT):
        raise InvalidArgumentError("compile_operator", "options.parts", 1, f"at least 2 for the schedule {options.schedule}")
