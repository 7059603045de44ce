"""Plans: complete, within the device's limits, and the same each time."""

from dataclasses import replace
from random import Random

import pytest

import vkdml
from vkdml.operators import cells
from vkdml.planning import tiling as cuts
from vkdml.planning.options import WORKSPACES, Options
from vkdml.planning.plan import plan
from vkdml_lab.suite.devices import DEVICES, SMALLEST, make_problem, random_problem
from vkdml_lab.suite.support import SCHEDULES, options_on


def drawn(seed):
    """A random problem and device, and the generator."""
    rng = Random(seed)
    info = rng.choice(list(DEVICES.values()))
    return random_problem(rng, info), info, rng


@pytest.mark.family("random problems", first=80)
@pytest.mark.parametrize("seed", range(200))
def test_plan(seed):
    problem, info, rng = drawn(seed)
    options = options_on(info, rng.choice(list(SCHEDULES)), problem.element)
    try:
        planned = plan(problem, info, options)
    except vkdml.InvalidArgumentError as error:
        assert error.field.startswith("options.")  # noqa: PT017  (the schedules are for smaller problems)
        options = Options(schedule=options.schedule)
        planned = plan(problem, info, options)
    assert planned == plan(problem, info, options)
    check_chunks(problem, planned.execute)
    if planned.fallback:
        check_chunks(problem, planned.fallback)
    for dispatch in planned.initialize + planned.execute + planned.fallback:
        check_dispatch(problem, info, dispatch)
        if "projection" not in dispatch.kernel and "pack" not in dispatch.kernel:
            check_loop(problem, info, planned, dispatch)
    assert all(size <= info.max_storage_buffer_range for size in planned.buffers.values())
    assert planned.buffers.get(cuts.GATES, 0) <= options.workspace_bytes
    waits = any(dispatch.constants.get("SPINS") for dispatch in planned.execute)
    assert (planned.timed_out is not None) == bool(planned.fallback) == waits
    assert waits >= (options.schedule == "persistent")
    projections = [dispatch.constants for dispatch in planned.execute + planned.fallback if "projection" in dispatch.kernel]
    assert all(constants == projections[0] for constants in projections)  # so that they share a pipeline


# Its fallbacks take nearly the same time, and one of them has many dispatches
CLOSE = make_problem(55, 57, 1, 385, 2, cell=cells.RNN, SequenceLengthsTensor=None), DEVICES["SwiftShader"], Random(4)


@pytest.mark.family("random problems, behind one that was wrong", first=21)
@pytest.mark.parametrize(("problem", "info", "rng"), [CLOSE, *map(drawn, range(100))])
def test_less_workspace_changes_chunks_only(problem, info, rng):
    """So that it compiles nothing, packs nothing again, and changes no bit of a result."""
    options = Options(schedule="persistent" if rng.random() < 0.8 and not problem.element.pairs else None)
    whole = plan(problem, info, options)
    for workspace in WORKSPACES:
        less = plan(problem, info, options, workspace)
        check_chunks(problem, less.execute)
        if less.fallback:
            check_chunks(problem, less.fallback)
        assert (less.initialize, less.packed, less.timed_out) == (whole.initialize, whole.packed, whole.timed_out)
        assert less.scratch | {cuts.GATES: 0} == whole.scratch | {cuts.GATES: 0}
        if cuts.GATES in whole.buffers:
            of_step = whole.tiling.projection.step_bytes
            assert less.buffers[cuts.GATES] == min(whole.buffers[cuts.GATES], max(of_step, workspace // of_step * of_step))
        for few, all_at_once in ((less.execute, whole.execute), (less.fallback, whole.fallback)):
            assert pipelines(few) == pipelines(all_at_once)


def pipelines(dispatches):
    return {(dispatch.kernel, *sorted(dispatch.constants.items())) for dispatch in dispatches}


def check_gpu_projection(constants):
    """Invocations share a tile out evenly, and tiles the units, in whole blocks of units. Each finds one sample."""
    assert constants["ROWS"] <= constants["WORKGROUP"]
    sample_lanes = constants["WORKGROUP"] // constants["UNIT_LANES"]
    assert constants["WORKGROUP"] % constants["UNIT_LANES"] == constants["ROWS"] % sample_lanes == 0
    assert constants["UNITS"] % constants["PART_UNITS"] == constants["PART_UNITS"] % constants["UNIT_LANES"] == 0
    assert constants["PART_UNITS"] % constants["TOGETHER"] == 0


def check_gpu_states(problem, planned, dispatch):
    """That each row has its vectors: in persistent, of each step."""
    constants, push = dispatch.constants, dispatch.push
    vector, phases = constants["HIDDEN_LOADS"] * problem.element.vecs_per_load * 16, problem.loop.phases
    if dispatch.kernel == f"gpu/{problem.cell.kernel}":
        vectors = constants["SLOTS"] * dispatch.groups[0] * constants["ROWS"]
    else:
        steps = push["last_step"] - push["first_step"] if constants["IS_PERSISTENT"] else 1
        vectors = (constants["SLOTS"] - 2 + 1 + phases * steps) * problem.batch
    assert planned.buffers[cuts.STATE] >= vectors * problem.directions * vector


def check_dispatch(problem, info, dispatch):
    constants = dispatch.constants
    assert constants["WORKGROUP"] <= info.max_workgroup_invocations
    assert all(1 <= count <= info.max_workgroup_count for count in dispatch.groups)
    assert set(dispatch.writes) <= set(dispatch.buffers.values())
    if "pack" in dispatch.kernel:
        return
    if dispatch.kernel == "gpu/projection":
        check_gpu_projection(constants)
        return
    if dispatch.kernel.startswith("gpu/"):  # test_gpu_loop.py
        return
    assert constants["UNITS"] % (constants["WORKGROUP"] * constants["UNITS_AT_ONCE"]) == 0
    if dispatch.kernel.startswith("float64/"):
        assert constants["ROWS"] == 1
    if not dispatch.kernel.startswith("cpu/"):
        assert (constants["LANES"], constants["UNITS_AT_ONCE"]) == (1, 1)
        return
    assert constants["LANES"] == info.subgroup_size
    assert constants["WORKGROUP"] % constants["LANES"] == 0
    assert constants["HIDDEN_LOADS"] * problem.element.vecs_per_load % constants["LANES"] == 0


def check_loop(problem, info, planned, dispatch):
    """That the parts have all units, and the states room."""
    if dispatch.kernel.startswith("gpu/"):
        check_gpu_states(problem, planned, dispatch)
        return
    constants = dispatch.constants
    tile = constants["ROWS"] * constants["HIDDEN_LOADS"] * problem.element.vecs_per_load * problem.element.real4_bytes
    states = dispatch.groups[0] * dispatch.groups[1]
    assert planned.buffers[cuts.STATE] >= states * constants["SLOTS"] * tile
    assert constants["PARTS"] * constants["PART_UNITS"] >= constants["UNITS"]
    assert constants["PART_UNITS"] % (constants["WORKGROUP"] * constants["UNITS_AT_ONCE"]) == 0
    if dispatch.kernel.endswith("_resident"):
        assert constants["PART_UNITS"] == constants["WORKGROUP"] * constants["UNITS_AT_ONCE"]
        assert constants["HIDDEN_LOADS"] * problem.element.columns_per_load in range(32, 16 * 32 + 1, 32)
    if constants["SHARED_STATE"]:
        assert constants["PARTS"] == 1
        assert constants.get("SHARED_SLOTS", constants["SLOTS"]) * tile <= info.max_shared_memory


def check_chunks(problem, dispatches):
    """The time loop's dispatches cover all steps once, in order, each after a projection of its steps."""
    projected, done, phase = 0, 0, 0
    for dispatch in dispatches:
        constants, push = dispatch.constants, dispatch.push
        first, last, gates_step = push["first_step"], push["last_step"], push["gates_step"]
        assert push["steps"] == problem.steps
        if "projection" in dispatch.kernel:
            assert (first, gates_step) == (projected, projected)
            projected, gates_first = last, first
            assert dispatch.groups[1] * constants["ROWS"] >= (last - first) * problem.batch
            continue
        if dispatch.kernel == "gpu/begin":
            assert first == done < last
            begun = last
            continue
        if dispatch.kernel == "gpu/end":
            assert dispatch is dispatches[-1]
            continue
        if dispatch.kernel.endswith(("_persistent", "_persistent_coherent")):
            assert last == begun  # for exactly these steps
        if not constants["FUSED"] and last:
            assert gates_first == gates_step <= first < last <= projected
        if dispatch.kernel.endswith("_stepped"):
            assert (last - first, push["phase"]) == (1, phase)
            phase = (phase + 1) % problem.loop.phases
        elif constants["PARTS"] > 1 and not constants.get("SPINS"):
            assert dispatches[0].push["last_step"] == 0
            if last == 0:
                assert dispatch is dispatches[0]
                continue
            assert (last - first, push["phase"]) == (1, phase)
            phase = (phase + 1) % problem.loop.phases
        assert first == done < last
        done = last if phase == 0 else first
    assert done == problem.steps


@pytest.mark.parametrize("name", [name for name, info in DEVICES.items() if info.is_cpu])
@pytest.mark.parametrize("sizes", [(1, 1, 64, 512), (100, 4, 256, 256), (1000, 1, 128, 128), (50, 1, 512, 2048)])
def test_on_cpu_drivers_persistent_has_to_be_asked_for(name, sizes):
    planned = plan(make_problem(*sizes), replace(DEVICES[name], cores=4))
    assert not planned.fallback
    assert not any(dispatch.constants.get("SPINS") for dispatch in planned.execute)


@pytest.mark.parametrize(("batch", "changes", "what"), [
    (3, {"max_storage_buffer_range": 2**16}, "packed input weights"), (3000, {"max_workgroup_count": 2}, "batch size"),
    (3000, {"max_storage_buffer_range": 2**16}, "gates: found 6144000 bytes for a time step; expected at most 65536, the largest storage")])
def test_what_a_device_cannot_hold_is_refused(batch, changes, what):
    with pytest.raises(vkdml.InvalidArgumentError, match=what):
        plan(make_problem(10, batch, 64, 128), replace(SMALLEST, **({"max_storage_buffer_range": 2**32} | changes)))


def test_a_time_step_may_have_more_than_the_workspace_unless_that_is_forced():
    problem, info = make_problem(2, 8200, 8, 2048), replace(SMALLEST, max_storage_buffer_range=2**32 - 4)
    planned = plan(problem, info)
    assert 2**28 < planned.buffers[cuts.GATES] == 8200 * 2048 * 16
    with pytest.raises(vkdml.InvalidArgumentError, match="options.workspace_bytes: found 1000; expected at least 268697600, the projection"):
        plan(problem, info, Options(workspace_bytes=1000))
