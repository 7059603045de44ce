"""A forced option runs or raises, alone and with any other; what no device could have is refused where options are made."""

from random import Random

import pytest

import vkdml
from vkdml.operators import cells, element_types
from vkdml.planning.options import SCHEDULES, Options
from vkdml.planning.plan import plan
from vkdml_lab.suite.devices import DEVICES, GPUS, make_problem

VALUES = {"schedule": SCHEDULES, "parts": [1, 2, 3, 5, 5000], "rows": range(1, 33), "units_at_once": range(1, 9), "workgroup": [1, 4, 8, 16, 32, 48, 128],
          "chunk_steps": [1, 5], "workspace_bytes": [1000, 10**6], "register_loads": [0, 2], "shared_loads": [0, 1],
          **{name: [False, True] for name in ("fused", "lanes", "resident", "shared_state")}}
PROBLEMS = {
    "float32": make_problem(20, 9, 10, 45),
    "one step": make_problem(1, 3, 10, 45, LinearBeforeReset=True),
    "wide": make_problem(5, 3, 70, 2048, cell=cells.LSTM, SequenceLengthsTensor=None),
    "long float16": make_problem(3000, 1, 8, 64, 2, cell=cells.RNN, element=element_types.FLOAT16),
    "float64": make_problem(20, 9, 10, 45, cell=cells.LSTM, element=element_types.FLOAT64),
}


def found_in(plan):
    """What was forced, as the dispatches have it."""
    loop = next(dispatch for dispatch in reversed(plan.execute) if dispatch.kernel != "gpu/end")
    kernels, constants = {dispatch.kernel for dispatch in plan.execute}, loop.constants
    schedule = "persistent" if constants.get("SPINS") else "sequence" if constants["PARTS"] == 1 else "stepped"
    return {
        "schedule": "stepped" if loop.kernel.endswith("_stepped") else schedule,
        "register_loads": constants.get("REGISTER_LOADS", 0), "shared_loads": constants.get("SHARED_LOADS", 0),
        "parts": constants["PARTS"], "rows": constants["ROWS"], "units_at_once": constants["UNITS_AT_ONCE"],
        "workgroup": constants["WORKGROUP"], "fused": not any("projection" in kernel for kernel in kernels),
        "lanes": loop.kernel.startswith("cpu/"), "resident": loop.kernel.endswith("_resident"),
        "shared_state": bool(constants["SHARED_STATE"]),
    }


def check_forced(problem, info, forced):
    """It runs as forced, or is refused by an option that was forced."""
    try:
        planned = plan(problem, info, Options(**forced))
    except vkdml.InvalidArgumentError as error:
        name = error.field.removeprefix("options.")
        assert name in forced, error  # noqa: PT017  (either outcome is right)
        assert f"found {forced[name]!r}; expected " in str(error)  # noqa: PT017
        return
    found = found_in(planned)
    assert {name: found[name] for name in forced if name in found} == {name: value for name, value in forced.items() if name in found}
    pushes = [dispatch.push for dispatch in planned.execute if "projection" not in dispatch.kernel]
    assert all(push["last_step"] - push["first_step"] <= forced.get("chunk_steps", 10**9) for push in pushes)
    assert planned.buffers.get("gates", 0) <= forced.get("workspace_bytes", 2**28)


@pytest.mark.family("random options of each problem on each device")
@pytest.mark.parametrize("info", DEVICES)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_any_options(problem, info):
    rng = Random(f"{problem} {info}")
    for _ in range(15):
        names = rng.sample(list(VALUES), rng.choice((1, 1, 2, 2, 3, 4, len(VALUES))))
        check_forced(PROBLEMS[problem], DEVICES[info], {name: rng.choice(VALUES[name]) for name in names})


LLVMPIPE, SWIFTSHADER, SMALLEST = (DEVICES[name] for name in ("llvmpipe", "SwiftShader", "smallest"))
NVIDIA, SMALL = GPUS["RTX 3090"], make_problem(9, 7, 10, 100)


@pytest.mark.parametrize(("info", "problem", "options", "message"), [
    (LLVMPIPE, make_problem(5, 1, 8, 2048), Options(resident=True), "options.resident: found True; expected False with H = 2048"),
    (LLVMPIPE, PROBLEMS["float32"], Options(schedule="stepped", resident=True), "options.resident: found True; expected False with schedule = 'stepped'"),
    (LLVMPIPE, PROBLEMS["float32"], Options(schedule="persistent", resident=True), "options.resident: found True; expected False with schedule = 'persistent'"),
    (LLVMPIPE, PROBLEMS["float32"], Options(schedule="persistent", lanes=True), "options.schedule: found 'persistent'; expected 'sequence' with lanes = True"),
    (LLVMPIPE, PROBLEMS["float32"], Options(lanes=False, resident=True), "options.resident: found True; expected False with lanes = False"),
    (LLVMPIPE, PROBLEMS["float32"], Options(schedule="sequence", parts=3), "options.parts: found 3; expected 1 with schedule = 'sequence'"),
    (LLVMPIPE, PROBLEMS["float32"], Options(lanes=False, units_at_once=2), "options.units_at_once: found 2; expected 1 with lanes = False"),
    (LLVMPIPE, PROBLEMS["float32"], Options(resident=True, workgroup=8), "options.workgroup: found 8; expected 24 or 48 with resident = True"),
    (LLVMPIPE, PROBLEMS["float32"], Options(schedule="stepped", shared_state=True), "options.shared_state: found True; expected False"),
    (LLVMPIPE, PROBLEMS["float64"], Options(schedule="persistent"), "options.schedule: found 'persistent'; expected 'sequence' with H = 45"),
    (LLVMPIPE, PROBLEMS["float32"], Options(fused=False, workspace_bytes=1000), "options.workspace_bytes: found 1000; expected at least 6912, the projection of one time step, with"),
    (LLVMPIPE, PROBLEMS["float64"], Options(rows=16), "options.rows: found 16; expected 1 with H = 45, I = 10 and float64 on cpu"),
    (LLVMPIPE, PROBLEMS["float64"], Options(lanes=True), "options.lanes: found True; expected False with H"),
    (SWIFTSHADER, PROBLEMS["float32"], Options(resident=True), "options.resident: found True; expected False with H"),
    (SWIFTSHADER, PROBLEMS["float32"], Options(schedule="persistent", rows=9), "options.rows: found 9; expected"),
    (SWIFTSHADER, PROBLEMS["float32"], Options(units_at_once=2, rows=17), "options.rows: found 17; expected"),
    (SMALLEST, PROBLEMS["float32"], Options(lanes=True), "options.lanes: found True; expected False with H"),
    (SMALLEST, PROBLEMS["float32"], Options(workgroup=256), "options.workgroup: found 256; expected a multiple of 16, at most 128"),
    (LLVMPIPE, PROBLEMS["float32"], Options(workgroup=12), "options.workgroup: found 12; expected a multiple of 8, at most 1024"),
    (NVIDIA, SMALL, Options(workgroup=40), "options.workgroup: found 40; expected a multiple of 32, at most 1024"),
    (NVIDIA, SMALL, Options(workgroup=2048), "options.workgroup: found 2048; expected a multiple of 32, at most 1024"),
    (NVIDIA, SMALL, Options(fused=True), "options.fused: found True; expected False"),
    (NVIDIA, SMALL, Options(schedule="persistent", register_loads=100), "options.register_loads: found 100; expected "),
    (NVIDIA, SMALL, Options(schedule="persistent", shared_loads=100), "options.shared_loads: found 100; expected "),
    (NVIDIA, SMALL, Options(schedule="sequence", workgroup=32, shared_loads=1), "options.shared_loads: found 1; expected 0 with schedule = 'sequence', workgroup"),
    (NVIDIA, SMALL, Options(schedule="stepped", parts=60), "options.parts: found 60; expected "),
    (NVIDIA, SMALL, Options(schedule="stepped", shared_state=False), "options.shared_state: found False; expected True"),
], ids=lambda value: value if isinstance(value, str) else type(value).__name__)
def test_refusals_name_the_option(info, problem, options, message):
    with pytest.raises(vkdml.InvalidArgumentError) as refusal:
        plan(problem, info, options)
    assert message in str(refusal.value)


@pytest.mark.parametrize(("name", "value"), [
    ("rows", -1), ("rows", 2.5), ("rows", 1000), ("schedule", "fast"), ("parts", 0), ("workspace_bytes", 0), ("chunk_steps", 0),
    ("workgroup", "a"), ("units_at_once", 9), ("lanes", "a"), ("shared_state", 2.5)])
def test_a_wrong_value_is_refused(name, value):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"^Options: {name}: found {value!r}; expected "):
        Options(**{name: value})


@pytest.mark.parametrize("schedule", ["stepped", "persistent"])
def test_one_part_is_not_in_parts(schedule):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"Options: parts: found 1; expected at least 2 for the schedule {schedule}"):
        Options(schedule=schedule, parts=1)
