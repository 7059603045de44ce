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
    """What to force instead of what the plan would choose, for tests and measurements; None leaves the choice.

    What is forced runs so, or InvalidArgumentError names the option. Where persistent parts do not meet, what runs instead has
    the forced kernel and rows, but a schedule of its own.

    schedule: one of SCHEDULES. persistent is never chosen, but has to be forced.
    parts: workgroups that share a tile's units: at least 2 with stepped and persistent, else 1.
    fused: multiply the input in the time loop.
    lanes: use the kernels that shuffle.
    row_lanes: of these, the ones whose invocations hold rows and not units.
    resident: of these, the ones whose recurrent weights stay in private memory (not stepped).
    projection_row_lanes: project by invocations that hold rows (not fused; always with row_lanes).
    rows: batch rows of a tile: 1 with float64, whole subgroups with row_lanes.
    units_at_once: units that an invocation computes together; 1 without lanes, and with row_lanes.
    workgroup: invocations of the time loop's workgroups: with lanes whole subgroups, with row_lanes one.
    shared_state: keep h in shared memory (without lanes or resident, and in one part).
    chunk_steps: most time steps that a dispatch runs.
    workspace_bytes: most memory for the projection's result; more time steps than fit go through in chunks.
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
