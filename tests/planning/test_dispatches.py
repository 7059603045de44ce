"""Dispatches have what their kernels declare: by names, so that nothing is bound or pushed in the wrong place."""

from dataclasses import replace
from itertools import product

import pytest

from vkdml.engine.vulkan.spirv import load
from vkdml.operators import cells, element_types
from vkdml.planning.loop_dispatches import time_loop
from vkdml.planning.options import Options
from vkdml.planning.plan import Measured, as_measured, best, described, fallbacks, plan, ranked
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import CPU, GPU, GPUS, make_problem
from vkdml_lab.suite.support import CELLS, SCHEDULES, options_on, tensor

MOST_SECONDS = 0.05  # of a submission on a GPU
NEEDED = {"Weights", "Packed", "HiddenWeights", "State", "HiddenInit", "OutputSingle"}  # whether fused or not


@pytest.mark.family("types and devices, each schedule in some", first=3 * len(SCHEDULES))
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("info", "element"), [(info, getattr(element_types, name)) for info, name in (
    (GPU, "FLOAT32"), (CPU, "FLOAT16"), (GPU, "FLOAT64"), (CPU, "FLOAT32"), (GPU, "FLOAT16"), (CPU, "FLOAT64"), (GPU, "BFLOAT16"),
    (CPU, "BFLOAT16"))], ids=lambda one: one.name)
def test_kernels_find_what_they_declare(info, element, name):
    for cell in CELLS:
        planned = plan(make_problem(9, 7, 10, 21, cell=cell, element=element), info, options_on(info, name, element))
        for dispatch in {dispatch.kernel: dispatch for dispatch in planned.initialize + planned.execute + planned.fallback}.values():
            declared = load(dispatch.kernel).interface
            assert set(declared.constant_ids) <= set(dispatch.constants)
            assert set(declared.push) <= set(dispatch.push)
            blocks = set().union(*declared.bindings.values())
            assert set(dispatch.buffers) <= blocks
            assert NEEDED & blocks <= set(dispatch.buffers)
            assert set(dispatch.writes) <= set(dispatch.buffers.values())
            assert len(declared.push) * 4 <= 128  # what Vulkan guarantees


def test_halves_are_stored_by_kernels_of_their_own_where_the_device_can():
    """On a GPU; a CPU driver's kernels store whole words."""
    for info, element in product((GPU, CPU), element_types.ALL):
        problem = make_problem(4, 3, 10, 45, cell=cells.LSTM, element=element)
        before, now = (plan(problem, replace(info, storage_16bit=can)) for can in (False, True))
        is_stored_so = info is GPU and element.itemsize == 2
        for part in ("initialize", "execute", "fallback"):
            for old, new in zip(getattr(before, part), getattr(now, part), strict=True):
                stores = not {*problem.outputs}.isdisjoint(old.writes)
                assert new == replace(old, kernel=f"halves/{old.kernel}" if is_stored_so and stores else old.kernel)


@pytest.mark.parametrize(("element", "strides", "in_vecs"), [
    ("FLOAT32", (32, 8, 1), 1), ("FLOAT32", (33, 8, 1), 0), ("FLOAT32", (32, 8, 2), 0), ("FLOAT16", (34, 10, 1), 1), ("FLOAT16", (33, 8, 1), 0),
    ("FLOAT16", (36, 9, 1), 0), ("BFLOAT16", (36, 9, 1), 0), ("FLOAT32", (36, 9, 1), 0)])
def test_what_lets_inputs_be_loaded_at_once(element, strides, in_vecs):
    element = getattr(element_types, element)
    described = tensor(1, 5, 4, 8, data_type=element.data_type, Strides=(0, *strides))
    planned = plan(make_problem(5, 4, 8, 64, element=element, InputTensor=described), CPU, Options(fused=True))
    assert planned.execute[-1].constants["X_IN_VECS"] == in_vecs


@pytest.mark.parametrize(("element", "hidden", "strides", "whole"), [
    ("FLOAT16", 64, None, 1), ("FLOAT16", 63, None, 0), ("FLOAT16", 64, (512, 512, 128, 2), 0), ("FLOAT16", 64, (257, 257, 64, 1), 0),
    ("FLOAT32", 64, None, 0)])
def test_what_lets_outputs_be_stored_as_words(element, hidden, strides, whole):
    element = getattr(element_types, element)
    described = tensor(5, 1, 4, hidden, data_type=element.data_type, Strides=strides)
    planned = plan(make_problem(5, 4, 8, hidden, element=element, OutputSequenceTensor=described), CPU)
    assert planned.execute[-1].constants["WHOLE_WORDS"] == whole


@pytest.mark.parametrize("slower", [1, 10])
@pytest.mark.parametrize(("options", "sizes", "phases", "element"), [
    (Options(schedule="sequence"), (100_000, 1), 1, "FLOAT32"), (Options(schedule="stepped"), (2_000, 100), 2, "FLOAT32"),
    (Options(schedule="persistent"), (500_000, 1), 1, "FLOAT32"),
    (Options(schedule="sequence", fused=False), (2_000, 2), 1, "FLOAT64"), (Options(schedule="stepped"), (1_000, 2), 2, "FLOAT64")],
    ids=str)
def test_a_submission_ends_before_drivers_would_end_it(options, sizes, phases, element, slower):
    """By the model, or by what was measured to be so many times slower: of each plan and its fallback. Each submission starts
    where the next dispatch would be too much for the one before.
    """
    problem = make_problem(*sizes, 64, 1024, element=getattr(element_types, element))
    options = replace(options, workspace_bytes=2**24)
    target = Target(problem, GPUS["RTX 3090"], options)
    if slower > 1:
        first, modelled = ranked(target)[0], target
        seconds = first.step_seconds(target) + first.projection_seconds(target, first.problem.steps) / first.problem.steps
        target = as_measured(target, Measured(described(first), slower * seconds))
        assert first.step_seconds(target) == pytest.approx(slower * first.step_seconds(modelled))
    tiling = best(target)
    for each in (tiling, *(fallbacks(target, tiling) if tiling.loop.schedule == "persistent" else [])):
        check_submissions(target, each, phases if each.loop.schedule == "stepped" else 1)


def check_submissions(target, tiling, phases):
    seconds, submissions = [], 0
    for dispatch in time_loop(target, tiling):
        steps = dispatch.push["last_step"] - dispatch.push["first_step"]
        is_projection, is_step = "projection" in dispatch.kernel, dispatch.kernel.partition("/")[2].startswith("gru")
        of_dispatch = (tiling.projection_seconds(target, steps) if is_projection
                       else steps * tiling.step_seconds(target) / phases if is_step else 0)
        if dispatch.starts_submission:
            assert sum(seconds) + of_dispatch > MOST_SECONDS
            seconds, submissions = [], submissions + 1
        seconds.append(of_dispatch)
        assert sum(seconds) <= MOST_SECONDS * (1 + 1e-9)
    assert submissions >= 1


def test_short_work_is_one_submission():
    for options in (Options(schedule="stepped"), Options(schedule="sequence", chunk_steps=2)):
        dispatches = plan(make_problem(20, 4, 64, 128), CPU, options).execute
        assert len(dispatches) > 5
        assert not any(dispatch.starts_submission for dispatch in dispatches)
