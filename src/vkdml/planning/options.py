"""What a caller may force in a plan."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidArgumentError, shown

SEQUENCE, STEPPED, PERSISTENT = "sequence", "stepped", "persistent"
SCHEDULES = (SEQUENCE, STEPPED, PERSISTENT)
BARRIER, FLOW = "barrier", "flow"
MEETINGS = (BARRIER, FLOW)
WORKSPACE_BYTES = 256 * 2**20
# Bounds on it where memory is short, the largest first. They are few, so that what is compiled for one problem serves the next
WORKSPACES = tuple(WORKSPACE_BYTES >> shift for shift in range(2, 14, 2))
_MOST_FORCED_ROWS, _MOST_FORCED_UNITS = 32, 8  # compilers take minutes over more


@dataclass(frozen=True)
class Options:
    """What to force instead of what the plan would choose, for tests and measurements; None leaves the choice.

    What is forced runs so, or InvalidArgumentError names the option. Where persistent parts do not meet, what runs instead has
    the forced kernel and rows, but a schedule of its own.

    schedule: one of SCHEDULES. persistent: not in float64; on a CPU driver only when it is forced, by the kernels for GPUs.
    meeting: how persistent parts wait for each other on a GPU, one of MEETINGS.
    parts: workgroups that share the units: at least 2 with stepped and persistent, else 1. On a GPU, one where a
    workgroup has room for all units, unless it is forced.
    fused: multiply the input in the time loop (not in the kernels for GPUs, which always project it).
    lanes: use the kernels that shuffle (not persistent).
    resident: of these, the ones whose recurrent weights stay in private memory (sequence).
    rows: batch rows of a tile: 1 with float64.
    units_at_once: units that an invocation computes together; 1 without lanes.
    register_loads, shared_loads: on a GPU, the loads of 16 bytes of recurrent weights of each gate that an invocation keeps in
    registers, and in shared memory (persistent), for a whole dispatch.
    workgroup: invocations of the time loop's workgroups: with lanes whole subgroups; on a GPU those of a multiple of 8
    units, each of which has as many as follow from H.
    shared_state: keep h in shared memory: with float64 and resident in sequence; on a GPU, where parts have a copy of a tile
    there, unless it has no room.
    chunk_steps: most time steps that a dispatch runs.
    workspace_bytes: most memory for the projection's result; more time steps than fit go through in chunks. Unless it is
    forced, one step may have more.
    """

    schedule: str | None = None
    meeting: str | None = None
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


def check_options(options: Options) -> None:
    if options.schedule not in (None, *SCHEDULES):
        raise InvalidArgumentError("compile_operator", "options.schedule", shown(options.schedule),
                                   "one of " + ", ".join(SCHEDULES))
    if options.meeting not in (None, *MEETINGS):
        raise InvalidArgumentError("compile_operator", "options.meeting", shown(options.meeting),
                                   "one of " + ", ".join(MEETINGS))
    for name in ("lanes", "resident", "fused", "shared_state"):
        value = getattr(options, name)
        if value not in (None, False, True):
            raise InvalidArgumentError("compile_operator", f"options.{name}", shown(value), "True, False or None")
    for name, most in (("rows", _MOST_FORCED_ROWS), ("units_at_once", _MOST_FORCED_UNITS), ("parts", 2**16),
                       ("register_loads", 2**16), ("shared_loads", 2**16),
                       ("workgroup", 2**31), ("chunk_steps", 2**31), ("workspace_bytes", 2**62)):
        value, least = getattr(options, name), 0 if name.endswith("_loads") else 1
        if value is not None and not (isinstance(value, int) and least <= value <= most):
            raise InvalidArgumentError("compile_operator", f"options.{name}", shown(value),
                                       f"a whole number from {least} to {most}")
    if options.parts == 1 and options.schedule in (STEPPED, PERSISTENT):
        raise InvalidArgumentError("compile_operator", "options.parts", 1, f"at least 2 for the schedule {options.schedule}")
