"""Tests gpu/model.py and gpu/steps.py, whose estimates of time must equal cycles counted by hand."""

from dataclasses import replace

import pytest

from lab.tests.test_gpu_assembly import AMD
from vkdml.planning.dispatches import Dispatch
from vkdml.planning.gpus import GPUS
from vkdml_lab.gpu.assembly import BESIDE, CONSTANT, FINISHING, LOAD, OTHER, SHARED, SUMMING, Instruction
from vkdml_lab.gpu.compiler import Pipeline
from vkdml_lab.gpu.gpus import DESKTOP, Gpu
from vkdml_lab.gpu.loops import Loop
from vkdml_lab.gpu.model import estimate, iteration, latencies
from vkdml_lab.gpu.steps import LoopStep, step_of

RATES = replace(GPUS["unknown"], units=4, clock=1e9, simds=2, simd_lanes=32, subgroups=16, unit_shared_bytes=65536, shared_rate=128,
                cache_rate=1e12, latency=400e-9, seen=900e-9)
GPU = Gpu("made up", DESKTOP, "", "", {}, RATES)
LATENCY = latencies(RATES)


def load(tag=LOAD, kind=LOAD, size=16):
    return Instruction(kind, size=size, tag=tag)


def use(tag=LOAD, most=0):
    return Instruction(OTHER, multiply_adds=4, waits={tag: most})


def cycles(*body, trips=(), width=32):
    return iteration(Loop(list(body)), trips, GPU, width).cycles


def test_an_instruction_a_cycle():
    assert cycles(*[use()] * 5) == 5


def test_more_lanes_than_a_vector_unit_has_take_turns():
    assert cycles(*[use()] * 5, width=64) == 10
    assert cycles(*[Instruction(BESIDE, lanes=1)] * 5, width=64) == 5


@pytest.mark.parametrize("kind", [LOAD, SHARED, CONSTANT])
def test_a_load_is_waited_for(kind):
    assert cycles(load(kind=kind), use()) == 1 + LATENCY[kind] + 1


def test_loads_under_way_together():
    expected = 1 + LATENCY[LOAD] + 1 + 1
    assert cycles(load(), load(), use(most=1), use()) == expected, "the second is there when the first has been used"


def test_loads_one_after_the_other():
    assert cycles(load(), use(), load(), use()) == 2 * (1 + LATENCY[LOAD] + 1)


def test_what_is_loaded_ahead_is_there_in_the_next_iteration():
    """A load costs no waiting time if only the next iteration uses it: 601 instructions take 601 cycles."""
    assert cycles(load(), *[use(most=1)] * 600) == 601


def test_loops_within_are_run_as_often_as_the_host_says():
    inner = Loop([use()] * 10)
    assert cycles(inner, trips=(7,)) == 70
    assert cycles(Loop([inner, use()]), trips=(2, 100)) == 2 * 1001
    assert cycles(Loop([Instruction(OTHER)] * 10), trips=(7,)) == 10, "without products, once"


def test_totals_of_all_iterations():
    step = iteration(Loop([Loop([load(), use()])]), (50,), GPU, 32)
    assert step.totals["weight loads"] == 50
    assert step.totals["multiply-adds"] == 50 * 4 * 32
    assert step.totals["load bytes"] == 50 * 16 * 32


def test_code_that_some_subgroups_skip():
    """`cycles` is for a subgroup that skips nothing. Cycles, bytes and waits in `totals` count by the share that has them."""
    body = [Instruction(SHARED, size=8, tag=SHARED, role=FINISHING), replace(use(SHARED), role=FINISHING)]
    step = iteration(Loop([use(), *body]), (), GPU, 64, LoopStep(True, (), finishing=1 / 16).shares(256, 64))
    assert step.cycles == iteration(Loop([use(), *body]), (), GPU, 64).cycles
    assert step.totals["vector cycles"] == 2 + 2 * 2 / 4
    assert step.totals["shared bytes"] == 8 * 64 / 16
    assert step.totals["shared waits"] == 1 / 4


def test_shares_of_roles():
    assert LoopStep(True, (), summing=1 / 4, finishing=1 / 16).shares(128, 32) == {"": (1, 1), SUMMING: (1 / 4, 1 / 4), FINISHING: (1 / 4, 1 / 16)}
    assert LoopStep(True, ()).shares(100, 32)[FINISHING] == (1, 1)


def made(step, workgroups=1, workgroup=32, dispatch=0.0, **figures):
    return estimate(GPU, Pipeline("kernel", 1.0, "", 32, {"subgroups": 16, "shared": 0, **figures}, True, AMD), step, workgroups,
                    workgroup, dispatch)


def test_an_estimate():
    found = made(LoopStep(True, (10,)))
    # A step: a poll, ten blocks, and the code between
    assert found.step.totals["state loads"] == 1
    assert found.step.totals["weight loads"] == 10
    assert found.seconds == found.limits["latency"] / RATES.clock
    assert found.limits["latency"] > 11 * LATENCY[LOAD]


def test_waiting_is_added():
    without = made(LoopStep(True, (10,)))
    assert made(LoopStep(True, (10,), dispatches=2), dispatch=1.0).seconds == pytest.approx(without.seconds + 2)
    assert made(LoopStep(True, (10,), exchanges=2)).seconds == pytest.approx(without.seconds + 2 * RATES.seen)


def test_subgroups_share_a_vector_unit():
    assert made(LoopStep(True, (10,)), workgroup=512).limits["instructions"] == 8 * made(LoopStep(True, (10,))).limits["instructions"]


def test_workgroups_that_do_not_fit_run_later():
    assert made(LoopStep(True, (10,)), workgroups=8, shared=40000).rounds == 2
    assert made(LoopStep(True, (10,)), workgroups=8, shared=10000).rounds == 1
    assert made(LoopStep(True, (10,)), workgroups=4 * 3, workgroup=512, subgroups=8).rounds == 3


def dispatch(kernel, **constants):
    sizes = {"PHASES": 2, "HIDDEN": 512, "HIDDEN_LOADS": 128, "COLUMN_GROUPS": 16, "REGISTER_LOADS": 2, "SHARED_LOADS": 0,
             "STREAM_LOADS": 2, "ROWS": 2, "WORKGROUP": 128, "GATES": 3}
    return Dispatch(kernel, sizes | constants, {}, (), (1, 1, 1), {"batch": 64, "tiles": 4})


SHARES = {"summing": 1 / 2, "finishing": 1 / 8}  # 16 column groups: 2 rows, by 4 invocations each
LOAD_OF_ALL = 128 * 3 * 16  # bytes of one load of each gate in a workgroup


@pytest.mark.parametrize(("kernel", "step", "weights", "loaded"), [
    ("gpu/gru", LoopStep(True, (64, 2), passes=128, own_loads=1), 64 * 6, 64 * 6),
    ("gpu/gru_stepped", LoopStep(False, (8, 2), dispatches=2, passes=16, own_loads=1), 8, 2 + 8 * 6),
    ("gpu/lstm_persistent", LoopStep(True, (8, 2), exchanges=2, passes=16, own_loads=1), 6, 8 * 6)])
def test_steps(kernel, step, weights, loaded):
    assert step_of(dispatch(kernel)) == replace(step, weights=weights * LOAD_OF_ALL, loaded=loaded * LOAD_OF_ALL, **SHARES)
    assert step_of(dispatch(kernel, ROWS=32)).finishing == 1


def test_weights_that_no_cache_holds_come_from_memory():
    held, too_large = RATES.cache_bytes, RATES.cache_bytes + 16
    assert made(LoopStep(True, (10,), weights=held, loaded=held)).limits["memory"] == held / RATES.cache_rate * RATES.clock
    found = made(LoopStep(True, (10,), weights=too_large, loaded=2 * too_large))
    assert found.seconds == pytest.approx(2 * too_large / RATES.memory_rate)
    several = made(LoopStep(True, (10,), weights=too_large, loaded=4 * too_large), workgroups=8, shared=40000)
    assert several.rounds == 2
    assert several.seconds == pytest.approx(4 * too_large / RATES.memory_rate), "of all rounds together"


def test_loops_that_run_once_are_none():
    assert step_of(dispatch("gpu/gru_persistent", REGISTER_LOADS=4)).trips == (8,)
    assert step_of(dispatch("gpu/gru", WORKGROUP=8192, REGISTER_LOADS=8)) == LoopStep(
        True, (), passes=2, own_loads=1, streams=False, **SHARES)


@pytest.mark.parametrize("kernel", ["pack", "gpu/begin", "gpu/end", "float64/gru", "float64/projection"])
def test_kernels_without_steps(kernel):
    assert step_of(dispatch(kernel)) is None
