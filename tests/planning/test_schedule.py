"""Plans: complete, within the device's limits, and the same each time. No device is needed."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vkdml
from tests.support import SCHEDULES, gru_desc
from vkdml.planning import costs, schedule, tiling
from vkdml.planning.device_info import DeviceInfo
from vkdml.runtime.kernels import load
from vkdml.spec import element_types
from vkdml.spec.problem import from_desc

# What Vulkan guarantees everywhere, but for the storage buffers of a stage (see docs/architecture.md)
SMALLEST = DeviceInfo(index=0, name="smallest", type="integrated", driver="any", driver_version="", api_version="1.1.0",
                      subgroup_size=1, subgroup_shuffle=False, max_workgroup_invocations=128, max_workgroup_count=65535,
                      max_shared_memory=16384, max_storage_buffer_range=2**27, max_storage_buffers=8)
CPU = replace(SMALLEST, name="cpu", type="cpu", driver="llvmpipe", subgroup_size=8, subgroup_shuffle=True,
              max_workgroup_invocations=1024, max_shared_memory=32768)
DEVICES = [SMALLEST, CPU, *(replace(SMALLEST, type="discrete", subgroup_size=size, subgroup_shuffle=True) for size in (16, 32, 64)),
           replace(CPU, driver="other", subgroup_size=4), replace(CPU, driver_version="Mesa 25.0.7"),
           replace(CPU, driver_version="Mesa 26.2.6-1 (LLVM 22.1.8)")]

SOME: Any = 2.5

problems = st.builds(
    lambda t, b, i, h, d, lbr, element: from_desc(
        gru_desc(t, b, i, h, d, data_type=element.data_type, LinearBeforeReset=lbr), element=element),
    st.one_of(st.just(1), st.integers(1, 2000)), st.integers(1, 200), st.integers(1, 300), st.integers(1, 600), st.integers(1, 2), st.booleans(),
    st.sampled_from(element_types.ALL))


def test_rates_are_those_of_the_newest_measured_mesa():
    """Of those that are not newer than the driver."""
    versions = ["Mesa 22.3.6 (LLVM 15.0.6)", "Mesa 24.0.0", "Mesa 25.3.0-devel (git-1)", "Mesa 26.2.6-1 (LLVM 22.1.8)", "Mesa 30.0.0"]
    old, first, same, newest, future = [costs.rates(replace(CPU, driver_version=version)) for version in versions]
    assert old == costs.rates(CPU)
    assert (first, newest) == (same, future)
    assert len({old, first, newest}) == 3


@settings(max_examples=200, deadline=None, derandomize=True)
@given(problems, st.sampled_from(DEVICES), st.sampled_from(list(SCHEDULES.values())))
def test_plan(problem, info, options):
    assume(all(tensor.size_in_bytes <= info.max_storage_buffer_range for tensor in problem.tensors.values()))
    if problem.element.pairs or not info.subgroup_shuffle:
        options = replace(options, lanes=None, row_lanes=None, resident=None, projection_row_lanes=None)
    if problem.element.pairs:
        options = replace(options, rows=None)  # with 16, a dispatch on llvmpipe has too many iterations from H = 185 on
    if info.driver != "llvmpipe":
        options = replace(options, row_lanes=None, resident=None, projection_row_lanes=None)
    options = replace(options, workgroup=None)  # forced ones need not suit every device
    plan = schedule.plan(problem, info, options)
    assert plan == schedule.plan(problem, info, options)
    check_chunks(problem, plan.execute)
    if plan.fallback:
        check_chunks(problem, plan.fallback)
    for dispatch in plan.initialize + plan.execute + plan.fallback:
        constants = dispatch.constants
        assert set(load(dispatch.kernel).constant_ids) <= set(constants)
        assert constants["WORKGROUP"] <= info.max_workgroup_invocations
        assert constants["UNITS"] % plan.execute[0].constants["WORKGROUP"] == 0
        if "BATCH" in constants:
            assert constants["UNITS"] % (constants["WORKGROUP"] * constants["UNITS_AT_ONCE"]) == 0
            assert constants["HIDDEN_LOADS"] % constants["LOADS_PER_BLOCK"] == constants["INPUT_LOADS"] % constants["LOADS_PER_BLOCK"] == 0
        if dispatch.kernel.startswith("sequence"):
            assert constants["PARTS"] * constants["PART_UNITS"] >= constants["UNITS"]
            states = math.prod(dispatch.groups) if stands_alone(problem, constants) else math.prod(dispatch.groups[:2])
            state = constants["SLOTS"] * constants["ROWS"] * constants["HIDDEN_LOADS"] * problem.element.vecs_per_load
            room = plan.gave_up[1] * 4 if plan.gave_up else plan.internal[tiling.STATE]
            assert room >= states * state * problem.element.real4_bytes
            assert constants["PART_UNITS"] % (constants["WORKGROUP"] * constants["UNITS_AT_ONCE"]) == 0
        assert len(dispatch.buffers) <= info.max_storage_buffers
        if info.driver == "llvmpipe" and "BATCH" in constants:
            assert iterations(problem, constants, dispatch) <= 65535
        assert all(1 <= count <= info.max_workgroup_count for count in dispatch.groups)
        assert set(dispatch.writes) <= set(dispatch.buffers)
        if dispatch.kernel.endswith("_rows"):
            assert constants["WORKGROUP"] == constants["LANES"]
            assert constants["ROWS"] in range(constants["LANES"], 5 * constants["LANES"], constants["LANES"])
            assert constants["BLOCK_COLUMNS"] in range(16, 257, 16)
            columns = constants["HIDDEN_LOADS" if "HAS_SINGLE" in load(dispatch.kernel).constant_ids else "INPUT_LOADS"]
            assert columns * problem.element.vecs_per_load * 4 % constants["BLOCK_COLUMNS"] == 0
        if dispatch.kernel.endswith("_resident"):
            assert constants["PART_UNITS"] == constants["WORKGROUP"] * constants["UNITS_AT_ONCE"]
            assert constants["HIDDEN_LOADS"] * problem.element.vecs_per_load * 4 in range(32, 16 * 32 + 1, 32)
        if dispatch.kernel.endswith(("_lanes", "_rows", "_resident")):
            assert constants["WORKGROUP"] % constants["LANES"] == 0
            assert constants["HIDDEN_LOADS"] * problem.element.vecs_per_load % constants["LANES"] == 0
        if dispatch.kernel.startswith("sequence") and constants["SHARED_STATE"]:
            assert constants["PARTS"] == 1
            slots = 2 if dispatch.kernel.endswith("_resident") else constants["SLOTS"]
            state = slots * constants["ROWS"] * constants["HIDDEN_LOADS"] * problem.element.vecs_per_load
            assert state * problem.element.real4_bytes <= info.max_shared_memory
    assert all(size <= info.max_storage_buffer_range for size in plan.internal.values())
    assert plan.internal.get(tiling.GATES, 0) <= options.workspace_bytes
    assert (plan.gave_up is not None) == bool(plan.fallback)
    projections = [dispatch.constants for dispatch in plan.execute + plan.fallback if dispatch.kernel.startswith("input_projection")]
    assert all(constants == projections[0] for constants in projections)  # so that they share a pipeline


def iterations_of_rows(problem, constants, columns, units, of_unit):
    """Of the row_lanes kernels' products. of_unit: with what follows the last block's."""
    blocks = columns * problem.element.vecs_per_load * 4 // constants["BLOCK_COLUMNS"]
    vectors = constants["ROWS"] // constants["LANES"]
    of_block = constants["BLOCK_COLUMNS"] // 16 * (vectors * 26 + 1) + units * (len(problem.cell.gates) + 4) + 2
    return blocks * of_block + units * of_unit + 1


def iterations(problem, constants, dispatch):
    """Of all loops of an invocation, each with its last check, as llvmpipe counts them; more than it may be, never less."""
    rows_kernel = dispatch.kernel.endswith("_rows")
    found = constants["ROWS"] + 1  # pairs of input_projection
    if dispatch.kernel.startswith("input_projection") and constants["COUNTED"]:
        found += (constants["ROWS"] // constants["LANES"] + 1 if rows_kernel else 1) * (constants["BATCH"] + 1)
    if rows_kernel and dispatch.kernel.startswith("input_projection"):
        blocks = constants["INPUT_LOADS"] * problem.element.columns_per_load // constants["BLOCK_COLUMNS"]
        stored = 0 if constants["OF_TILES"] else constants["PART_UNITS"] * (constants["ROWS"] // constants["LANES"] + 1)
        products = iterations_of_rows(problem, constants, constants["INPUT_LOADS"], constants["PART_UNITS"], 0)
        return products + blocks * stored + found
    per_block = max(1, constants["LANES"] // problem.element.vecs_per_load)
    of_block = 1 if constants["LANES"] == 1 or constants["IN_LINE"] else per_block + 2  # dot.glsl
    if problem.element.pairs:  # loops over four columns, with a last check, in ones over gates, units and rows
        of_unit = constants["GATES"] * (5 + 1) + 2
        of_block = constants["ROWS"] * (constants["UNITS_AT_ONCE"] * of_unit + 2 + 5) + 5
        of_block += 2 * constants["UNITS_AT_ONCE"] * (constants["GATES"] + 2) + 2  # their weights
    inputs, hidden = (constants[f"{name}_LOADS"] // per_block * of_block + 1 for name in ("INPUT", "HIDDEN"))
    if dispatch.kernel.startswith("input_projection"):
        return inputs + constants["ROWS"] * constants["UNITS_AT_ONCE"] + 1 + found
    phases = constants["PHASES"]
    unrolled = constants["LANES"] == 1 and not problem.element.pairs  # the loops over a tile's rows
    tile = 5 if unrolled else (constants["ROWS"] + 1) * constants["UNITS_AT_ONCE"] + 5
    if problem.element.pairs:  # LSTM's five activations have up to 30 iterations each
        tile += constants["UNITS_AT_ONCE"] * constants["ROWS"] * 150
    units = constants["PART_UNITS"] // constants["WORKGROUP"]
    unit_tiles = units // constants["UNITS_AT_ONCE"]
    meetings = 32 + 1 if constants["SPINS"] else 0
    cleared = units * (constants["ROWS"] + 1) + 1 if constants["HAS_LENGTHS"] else 0
    steps = dispatch.push[1] - dispatch.push[0]
    of_phase = unit_tiles * (hidden + inputs * constants["FUSED"] + tile)
    if rows_kernel:
        of_phase = iterations_of_rows(problem, constants, constants["HIDDEN_LOADS"], constants["PART_UNITS"],
                                      constants["ROWS"] // constants["LANES"] + 2)
    filled = 0
    if dispatch.kernel.endswith("_resident"):
        of_phase = constants["ROWS"] * (constants["UNITS_AT_ONCE"] + 2) + 1
        arrays = constants["HIDDEN_LOADS"] * problem.element.columns_per_load // 32
        filled = constants["HIDDEN_LOADS"] * (arrays + 2) + 1
    of_step = phases * (of_phase + meetings + 1) + cleared + 1
    begun = -(-problem.hidden // constants["WORKGROUP"]) if stands_alone(problem, constants) else units
    states = (begun + units + 2) * (constants["ROWS"] + 1)
    return steps * of_step + filled + constants["SPINS"] + (constants["ROWS"] + 1) ** 2 + states


def stands_alone(problem, constants):
    """Whether a part runs the only step, of one phase, with a state of its own."""
    if constants["OWN_STATES"]:
        assert constants["PARTS"] > 1
        assert not constants["SPINS"]
        assert problem.steps * constants["PHASES"] == 1
    return bool(constants["OWN_STATES"])


def check_chunks(problem, dispatches):
    """The time loop's dispatches cover all steps once, in order, each after a projection of its steps."""
    projected, done, phase = 0, 0, 0
    for dispatch in dispatches:
        first, last, its_phase, gates_step, _ = dispatch.push
        if dispatch.kernel.startswith("input_projection"):
            assert (first, gates_step) == (projected, projected)
            projected, gates_first = last, first
            tiles, rows = (last - first) * problem.batch, dispatch.constants["ROWS"]
            if dispatch.constants["OF_TILES"]:  # a step's each
                tiles = (last - first) * -(-problem.batch // rows) * rows
            assert dispatch.groups[1] * rows >= tiles
            continue
        constants = dispatch.constants
        if not constants["FUSED"] and last:
            assert gates_first == gates_step <= first < last <= projected
        if constants["PARTS"] > 1 and not constants["SPINS"]:
            assert (dispatches[0].push[1] == 0) == (not stands_alone(problem, constants))
            if last == 0:
                assert dispatch is dispatches[0]
                continue
            assert (last - first, its_phase) == (1, phase)
            phase = (phase + 1) % problem.loop.phases
        assert first == done
        done = last if phase == 0 else first
    assert done == problem.steps


def test_a_gpu_gets_no_shuffles_and_shared_state():
    info = replace(SMALLEST, subgroup_size=32, subgroup_shuffle=True)
    execute = schedule.plan(from_desc(gru_desc(10, 4, 64, 128)), info, vkdml.Options(schedule="sequence", fused=False)).execute
    assert [dispatch.kernel for dispatch in execute] == ["input_projection", "sequence_gru"]
    assert execute[1].constants["SHARED_STATE"] == 1


def test_a_gpu_gets_wide_workgroups_and_loads_in_blocks():
    info = replace(SMALLEST, type="discrete", max_workgroup_invocations=1024)
    options = [vkdml.Options(schedule=name, fused=False) for name in ("sequence", "stepped")]
    plans = [schedule.plan(from_desc(gru_desc(10, 1, 64, 512)), info, forced).execute for forced in options]
    assert [[dispatch.constants["WORKGROUP"] for dispatch in plan[-2:]] for plan in plans] == [[64, 512], [32, 32]]
    assert all(dispatch.constants["LOADS_PER_BLOCK"] == 4 for plan in plans for dispatch in plan)


def test_one_step_in_parts_is_one_dispatch():
    desc = gru_desc(1, 4, 64, 128, LinearBeforeReset=True)
    [dispatch] = schedule.plan(from_desc(desc), CPU, vkdml.Options(schedule="stepped", fused=True)).execute
    assert stands_alone(from_desc(desc), dispatch.constants)


def test_one_step_is_one_dispatch():
    assert [dispatch.kernel for dispatch in schedule.plan(from_desc(gru_desc(1, 4, 64, 128)), CPU).execute] == ["sequence_gru_lanes"]


@pytest.mark.parametrize("info", [CPU, SMALLEST])
def test_parts_have_no_states_of_their_own_with_many_rows(info):
    plan = schedule.plan(from_desc(gru_desc(1, 512, 64, 2048, LinearBeforeReset=True)), info)
    assert plan.internal[tiling.STATE] <= 2**24 or not plan.execute[-1].constants["OWN_STATES"]


def test_one_step_of_many_rows_still_has_parts():
    desc = gru_desc(1, 512, 64, 2048, LinearBeforeReset=True)
    execute = schedule.plan(from_desc(desc), CPU, vkdml.Options(schedule="stepped", row_lanes=True)).execute
    assert not any(dispatch.constants["OWN_STATES"] for dispatch in execute)
    assert execute[-1].constants["PARTS"] > 1


def test_a_fallback_shares_out_the_rows():
    """Unlike the parts that it stands in for, as those share out the units."""
    options = vkdml.Options(schedule="persistent", resident=True)
    plan = schedule.plan(from_desc(gru_desc(100, 4, 256, 256)), replace(CPU, cores=2), options)
    assert plan.execute[-1].groups == (1, 1, 2)
    assert plan.fallback[-1].groups == (2, 1, 1)


@pytest.mark.parametrize(("changes", "what"), [({"max_storage_buffer_range": 2**16}, "packed input weights"),
                                               ({"max_storage_buffers": 4}, "storage buffers"),
                                               ({"max_workgroup_count": 2}, "batch size")])
def test_what_a_device_cannot_hold_is_refused(changes, what):
    problem = from_desc(gru_desc(10, 3000, 64, 128))
    with pytest.raises(vkdml.InvalidArgumentError, match=what):
        schedule.plan(problem, replace(SMALLEST, **({"max_storage_buffer_range": 2**32} | changes)))


@pytest.mark.parametrize(("options", "what"), [(vkdml.Options(lanes=True), "options.lanes"), (vkdml.Options(row_lanes=True), "options.row_lanes"),
                                              (vkdml.Options(resident=True), "options.resident"), (vkdml.Options(workgroup=256), "options.workgroup"),
                                              (vkdml.Options(rows=-1), "options.rows"), (vkdml.Options(rows=SOME), "options.rows"),
                                              (vkdml.Options(rows=1000), "options.rows"), (vkdml.Options(schedule="any"), "options.schedule"),
                                              (vkdml.Options(parts=0), "options.parts"), (vkdml.Options(parts=1, schedule="stepped"), "options.parts"), (vkdml.Options(workspace_bytes=0), "options.workspace_bytes"), (vkdml.Options(chunk_steps=0), "options.chunk_steps")])
def test_impossible_options_are_refused(options, what):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{what}: found"):
        schedule.plan(from_desc(gru_desc()), SMALLEST, options)


def test_options_that_leave_too_much_for_a_dispatch_are_named():
    desc = gru_desc(1, 16, 1, 1000, data_type=vkdml.DML_TENSOR_DATA_TYPE.FLOAT64)
    problem = from_desc(desc, element=next(element for element in element_types.ALL if element.pairs))
    with pytest.raises(vkdml.InvalidArgumentError, match=r"options: found \{'rows': 16\} with H = 1000"):
        schedule.plan(problem, CPU, vkdml.Options(rows=16))
