"""Plans: complete, within the device's limits, and the same each time. No device is needed."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vkdml
from tests.support import SCHEDULES, gru_desc
from vkdml import element_types, schedule
from vkdml.kernels import load
from vkdml.problem import from_desc
from vkdml.vulkan import DeviceInfo

# What Vulkan guarantees everywhere, but for the storage buffers of a stage (see docs/architecture.md)
SMALLEST = DeviceInfo(index=0, name="smallest", type="integrated", driver="any", driver_version="", api_version="1.1.0",
                      subgroup_size=1, subgroup_shuffle=False, max_workgroup_invocations=128, max_workgroup_count=65535,
                      max_shared_memory=16384, max_storage_buffer_range=2**27, max_storage_buffers=8)
CPU = replace(SMALLEST, name="cpu", type="cpu", driver="llvmpipe", subgroup_size=8, subgroup_shuffle=True,
              max_workgroup_invocations=1024, max_shared_memory=32768)
DEVICES = [SMALLEST, CPU, *(replace(SMALLEST, type="discrete", subgroup_size=size, subgroup_shuffle=True) for size in (16, 32, 64)),
           replace(CPU, driver="other", subgroup_size=4)]

SOME: Any = 2.5

problems = st.builds(
    lambda t, b, i, h, d, lbr, element: from_desc(
        gru_desc(t, b, i, h, d, data_type=element.data_type, LinearBeforeReset=lbr), element=element),
    st.integers(1, 3000), st.integers(1, 300), st.integers(1, 300), st.integers(1, 600), st.integers(1, 2), st.booleans(),
    st.sampled_from(element_types.ALL))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(problems, st.sampled_from(DEVICES), st.sampled_from(list(SCHEDULES.values())))
def test_plan(problem, info, options):
    assume(all(tensor.size_in_bytes <= info.max_storage_buffer_range for tensor in problem.tensors.values()))
    if options.lanes and (problem.element.pairs or not info.subgroup_shuffle):
        options = replace(options, lanes=None)
    options = replace(options, workgroup=None)  # forced ones need not suit every device
    plan = schedule.plan(problem, info, options)
    assert plan == schedule.plan(problem, info, options)
    check_chunks(problem, plan)
    for dispatch in plan.initialize + plan.execute:
        constants = dispatch.constants
        assert set(load(dispatch.kernel).constant_ids) <= set(constants)
        assert constants["WORKGROUP"] <= info.max_workgroup_invocations
        assert constants["UNITS"] % plan.execute[0].constants["WORKGROUP"] == 0
        assert len(dispatch.buffers) <= info.max_storage_buffers
        if info.driver == "llvmpipe" and "STEPS" in constants:
            assert iterations(problem, constants, dispatch) <= 65535
        assert all(1 <= count <= info.max_workgroup_count for count in dispatch.groups)
        assert set(dispatch.writes) <= set(dispatch.buffers)
        if dispatch.kernel.endswith("_lanes"):
            assert constants["WORKGROUP"] % constants["LANES"] == 0
            assert constants["HIDDEN_LOADS"] * problem.element.vecs_per_load % constants["LANES"] == 0
        if dispatch.kernel.startswith("sequence") and constants["SHARED_STATE"]:
            state = constants["SLOTS"] * constants["ROWS"] * constants["HIDDEN_LOADS"] * problem.element.vecs_per_load
            assert state * problem.element.real4_bytes <= info.max_shared_memory
    assert all(size <= info.max_storage_buffer_range for size in plan.internal.values())
    assert plan.internal.get(schedule.GATES, 0) <= schedule.WORKSPACE_BYTES


def iterations(problem, constants, dispatch):
    """Of all loops of an invocation, each with its last check, as llvmpipe counts them; more than it may be, never less."""
    per_block = max(1, constants["LANES"] // problem.element.vecs_per_load)
    inputs, hidden = (constants[f"{name}_LOADS"] // per_block + 1 for name in ("INPUT", "HIDDEN"))
    if dispatch.kernel.startswith("input_projection"):
        return inputs
    phases = 2 if "gru" in dispatch.kernel and not constants["LINEAR_BEFORE_RESET"] else 1
    # In pairs rows are a loop, and LSTM's five activations have up to 30 iterations each
    rows = (constants["ROWS"] * 151 + 1) * problem.element.pairs
    units = constants["UNITS"] // constants["WORKGROUP"] + 1
    steps = dispatch.push[1] - dispatch.push[0] + 1
    return steps * (phases * units * (hidden + inputs * constants["FUSED"] + 1 + rows) + 1) + 3 * units


def check_chunks(problem, plan):
    """The time loop's dispatches cover all steps once, in order, each after its own projection."""
    loops = [dispatch for dispatch in plan.execute if dispatch.kernel.startswith("sequence")]
    ends = [0, *[dispatch.push[1] for dispatch in loops]]
    assert [dispatch.push[0] for dispatch in loops] == ends[:-1]
    assert ends[-1] == problem.steps
    if len(plan.execute) > len(loops):
        assert [dispatch.push for dispatch in plan.execute[::2]] == [dispatch.push for dispatch in loops]
        for projection in plan.execute[::2]:
            rows = projection.groups[1] * projection.constants["ROWS"]
            assert rows >= (projection.push[1] - projection.push[0]) * problem.batch


def test_a_gpu_gets_no_shuffles_and_shared_state():
    execute = schedule.plan(from_desc(gru_desc(10, 4, 64, 128)), replace(SMALLEST, subgroup_size=32, subgroup_shuffle=True)).execute
    assert [dispatch.kernel for dispatch in execute] == ["input_projection", "sequence_gru"]
    assert execute[1].constants["SHARED_STATE"] == 1


def test_one_step_is_one_dispatch():
    assert [dispatch.kernel for dispatch in schedule.plan(from_desc(gru_desc(1, 4, 64, 128)), CPU).execute] == ["sequence_gru_lanes"]


@pytest.mark.parametrize(("changes", "what"), [({"max_storage_buffer_range": 2**16}, "packed input weights"),
                                               ({"max_storage_buffers": 4}, "storage buffers"),
                                               ({"max_workgroup_count": 2}, "batch size")])
def test_what_a_device_cannot_hold_is_refused(changes, what):
    problem = from_desc(gru_desc(10, 3000, 64, 128))
    with pytest.raises(vkdml.InvalidArgumentError, match=what):
        schedule.plan(problem, replace(SMALLEST, **({"max_storage_buffer_range": 2**32} | changes)))


@pytest.mark.parametrize(("options", "what"), [(vkdml.Options(lanes=True), "options.lanes"), (vkdml.Options(workgroup=256), "options.workgroup"),
                                              (vkdml.Options(rows=-1), "options.rows"), (vkdml.Options(rows=SOME), "options.rows"),
                                              (vkdml.Options(rows=1000), "options.rows"), (vkdml.Options(chunk_steps=0), "options.chunk_steps")])
def test_impossible_options_are_refused(options, what):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{what}: found"):
        schedule.plan(from_desc(gru_desc()), SMALLEST, options)
