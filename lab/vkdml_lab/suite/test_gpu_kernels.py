"""Tests the GPUs' kernels on any driver. Each schedule and tiling must be right, and all must give the same bits.

The kernels do not depend on the subgroup size (8 on lavapipe, 4 on SwiftShader). The number of invocations in a workgroup may
be any multiple of 8 times the number of invocations per unit (column groups).

If not all persistent workgroups run at once, they may give up waiting, and the fallback gives the same bits. So the tests pass
on a busy machine, too.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest

from vkdml.engine.commands import _Attempt
from vkdml.faces.directml.device import Operator
from vkdml.operators import cells, element_types, reference
from vkdml.operators.checks import ceil_div, round_up
from vkdml.operators.header import descs
from vkdml.planning import plan, profiles
from vkdml.planning.families import gpu_loop
from vkdml.planning.families.gpu_loop import GpuLoop, column_groups
from vkdml.planning.options import PERSISTENT, SEQUENCE, STEPPED, Options
from vkdml.planning.plan import best
from vkdml.planning.tiling import Target
from vkdml_lab.suite.support import (
    Case,
    assert_same,
    check,
    drawn_case,
    execute,
    initialize,
    make_desc,
    make_outputs,
    random_arrays,
    random_strides,
    read_output,
    run_on_device,
)

REVERSE = descs.DML_RECURRENT_NETWORK_DIRECTION(1)
WITHOUT_LENGTHS = dict.fromkeys(["SequenceLengthsTensor"])
FLOAT16, BFLOAT16 = element_types.FLOAT16, element_types.BFLOAT16
HALF, ALL = -1, 1000  # half of the units; all loads
_MOST_INVOCATIONS = 512  # more sums would not fit in shared memory


@dataclass(frozen=True)
class Way:
    """Settings for a run. units: per workgroup; None: the planner's. in_chunks: two steps a dispatch, three a projection."""

    schedule: str
    units: int | None = None
    rows: int | None = None
    register_loads: int | None = None
    shared_loads: int | None = None
    in_chunks: bool = False

    def options(self, problem, info):
        forced = Options(lanes=False, schedule=self.schedule, rows=self.rows)
        groups = column_groups(problem, info)
        most = min(_MOST_INVOCATIONS, info.max_workgroup_invocations) // groups // 8 * 8
        units = round_up(ceil_div(problem.hidden, 2), 8) if self.units == HALF else self.units
        if units:
            forced = replace(forced, workgroup=min(units, most) * groups)
        tiling = best(Target(problem, info, forced))
        left = tiling.loop.group_loads
        if self.register_loads is not None:
            forced = replace(forced, register_loads=min(self.register_loads, left))
            left -= forced.register_loads
        if self.shared_loads is not None:
            forced = replace(forced, shared_loads=min(self.shared_loads, left))
        return replace(forced, chunk_steps=2, workspace_bytes=3 * tiling.projection.step_bytes) if self.in_chunks else forced


WAYS = {  # the first eight, and as many cases, run in `make test`
    "sequence": Way(SEQUENCE),
    "sequence, 4 rows": Way(SEQUENCE, units=8, rows=4),
    "sequence, in chunks": Way(SEQUENCE, rows=2, in_chunks=True),
    "stepped, 8 rows": Way(STEPPED, units=8, rows=8, register_loads=1),
    "stepped, all kept": Way(STEPPED, units=24, rows=2, register_loads=ALL),
    "persistent": Way(PERSISTENT, HALF),
    "persistent, shared": Way(PERSISTENT, 8, rows=4, register_loads=1, shared_loads=1, in_chunks=True),
    "persistent, in chunks": Way(PERSISTENT, HALF, rows=2, register_loads=0, in_chunks=True),
    "sequence, turns": Way(SEQUENCE, units=8),
    "sequence, streamed": Way(SEQUENCE, register_loads=0),
    "stepped": Way(STEPPED, units=8),
    "stepped, in chunks": Way(STEPPED, units=40, register_loads=0, in_chunks=True),
    "persistent, all kept": Way(PERSISTENT, HALF, rows=1, register_loads=ALL),
    "persistent, many parts": Way(PERSISTENT, 8, rows=1),
}


def make_case(cell, sizes, element=element_types.FLOAT32, clip=None, seed=8, **changes):
    """Make a case whose first row has the sequence length 0, and whose last row has T."""
    case = drawn_case(make_desc(cell, *sizes, data_type=element.data_type, **changes), clip, element, seed)
    if "SequenceLengthsTensor" in case.arrays and sizes[1] > 1:
        case.arrays["SequenceLengthsTensor"].flat[[0, -1]] = 0, sizes[0]
    return case


def strided(case):
    """Return a case like this one, but with new inputs, and with strides and gaps in X, h and the outputs."""
    rng = np.random.default_rng(9)
    fields = ["InputTensor", "HiddenInitTensor", "OutputSequenceTensor", "OutputSingleTensor"]
    desc = replace(case.desc, **{field: replace(getattr(case.desc, field), Strides=random_strides(
        rng, getattr(case.desc, field).Sizes, False)) for field in fields})
    arrays = random_arrays(desc, rng, case.element)
    return Case(desc, case.clip, arrays | {"SequenceLengthsTensor": case.arrays["SequenceLengthsTensor"]}, case.element)


# Units that are no whole workgroups, workgroups without units, rows that are no whole tiles
CASES = {
    "GRU of one": make_case(cells.GRU, (1, 1, 1, 1), **WITHOUT_LENGTHS),
    "GRU, strided": strided(make_case(cells.GRU, (4, 3, 6, 20, 2))),
    "RNN in float16": make_case(cells.RNN, (4, 20, 5, 100), FLOAT16, OutputSequenceTensor=None),
    "LSTM, coupled": make_case(cells.LSTM, (3, 20, 5, 7), CoupleInputForget=True, PeepholeTensor=None, Direction=REVERSE),
    "GRU": make_case(cells.GRU, (5, 3, 5, 100), clip=0.3),
    "GRU, linear": make_case(cells.GRU, (4, 9, 5, 7, 2), LinearBeforeReset=True),
    "LSTM in bfloat16": make_case(cells.LSTM, (4, 9, 5, 128), BFLOAT16),
    "RNN, wide": make_case(cells.RNN, (3, 3, 5, 260, 2)),
    "GRU, wide": make_case(cells.GRU, (3, 1, 5, 260), **WITHOUT_LENGTHS),
    "GRU in float16": make_case(cells.GRU, (4, 3, 5, 100, 2), FLOAT16),
    "GRU in bfloat16": make_case(cells.GRU, (3, 9, 5, 128), BFLOAT16, LinearBeforeReset=True, Direction=REVERSE),
    "LSTM": make_case(cells.LSTM, (5, 3, 5, 100, 2), clip=0.5),
    "RNN": make_case(cells.RNN, (5, 9, 5, 128)),
    "LSTM in float16": make_case(cells.LSTM, (3, 3, 5, 260), FLOAT16),
    "LSTM, little given": make_case(cells.LSTM, (4, 1, 5, 128), **dict.fromkeys(
        ["SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor", "BiasTensor", "PeepholeTensor"])),
    "RNN in bfloat16": make_case(cells.RNN, (3, 1, 5, 1), BFLOAT16, OutputSingleTensor=None),
}


@lru_cache
def in_sequence(device, name):
    case = CASES[name]
    return run_on_device(device, case, WAYS["sequence"].options(case.problem, device.info))


@pytest.mark.family("each way with each case", diagonal=8)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_right_and_gives_the_same_bits(device, way, name):
    case = CASES[name]
    expected = in_sequence(device, name)
    results = run_on_device(device, case, WAYS[way].options(case.problem, device.info))
    check(case, results)
    assert_same(results, expected)


@pytest.mark.family("each way with each case; the first have each way, cell and size of words", first=5)
@pytest.mark.parametrize(("way", "name"), [(way, list(CASES)[(3 * place + shift) % len(CASES)]) for shift in range(len(CASES))
                                           for place, way in enumerate(way for way in WAYS if way.startswith("persistent"))])
def test_coherent_loads_give_the_same_bits(device, with_profile, way, name):
    with_profile(coherent_polls=True)
    case = CASES[name]
    expected = in_sequence(device, name)
    compiled, results = executed(device, case, WAYS[way].options(case.problem, device.info))
    assert {dispatch.kernel.partition("_")[2] for dispatch in compiled.plan.execute if "Gates" in dispatch.buffers
            and "projection" not in dispatch.kernel} == {"persistent_coherent"}
    assert_same(results, expected)


def run_in_place(device, case, options):
    """Run a case twice. Last states overwrite initial ones, so the second run continues the first. Returns outputs by field."""
    compiled = device.compile_operator(Operator(case.problem), options=options)
    buffers = {field: device.upload(array) for field, array in case.arrays.items()}
    shared = {"OutputSingleTensor": "HiddenInitTensor", "OutputCellSingleTensor": "CellMemInitTensor"}
    outputs = {field: buffers.get(shared.get(field), buffer) for field, buffer in make_outputs(device, compiled).items()}
    initialize(device, compiled, buffers)
    execute(device, compiled, buffers, outputs, times=2)
    return {field: read_output(compiled, field, buffer) for field, buffer in outputs.items()}


@pytest.mark.family("each way with each cell", diagonal=2)
@pytest.mark.parametrize("cell", [cells.LSTM, cells.GRU], ids=lambda cell: cell.name)
@pytest.mark.parametrize("way", ["persistent, in chunks", "stepped", "sequence, in chunks"])
def test_last_states_may_take_the_place_of_the_initial_ones(device, way, cell):
    """Last states may overwrite the initial ones. If workgroups give up, the fallback still needs the initial states."""
    case = make_case(cell, (5, 3, 5, 40))
    case.arrays["SequenceLengthsTensor"].flat[:] = 5
    results = run_in_place(device, case, WAYS[way].options(case.problem, device.info))
    first = reference.run(case.problem, case.arrays)
    initial = {"HiddenInitTensor": first["OutputSingleTensor"], "CellMemInitTensor": first.get("OutputCellSingleTensor")}
    check(replace(case, arrays=case.arrays | {field: array for field, array in initial.items() if array is not None}), results)


# Workgroups that cannot run at once
GAVE_UP = "workgroups gave up waiting"  # in the log


def executed(device, case, options):
    """Run a case. Returns the compiled operator, and its outputs by field."""
    compiled = device.compile_operator(Operator(case.problem), options=options)
    buffers, outputs = {field: device.upload(array) for field, array in case.arrays.items()}, make_outputs(device, compiled)
    execute(device, compiled, buffers, outputs)
    return compiled, {field: read_output(compiled, field, buffer) for field, buffer in outputs.items()}


@pytest.mark.family("cells", first=1)
@pytest.mark.parametrize("cell", [cells.GRU, cells.LSTM], ids=lambda cell: cell.name)
def test_parts_that_never_meet_give_up(device, with_profile, monkeypatch, caplog, cell):
    """Workgroups that may poll only once give up waiting. The fallback must be right, and so must later executions."""
    with_profile(spins=1)
    case = make_case(cell, (6, 2, 5, 128))
    options = Options(lanes=False, schedule=PERSISTENT, parts=16)
    expected = run_on_device(device, case, Options(lanes=False, schedule=STEPPED, parts=16))
    _, results = executed(device, case, options)
    assert caplog.text.count(GAVE_UP) == 1
    check(case, results)
    assert_same(results, expected)
    monkeypatch.undo()
    for after in (Options(), options, Options(lanes=False)):
        check(case, run_on_device(device, case, after))


# Workgroups may wait for long. These tests have few steps, so that is short enough
LONG_WAITS = {"spins": 10_000, "most_iterations": profiles.MOST_ITERATIONS}
# One workgroup, so that nothing depends on what runs at once
ONE_PART = Options(lanes=False, schedule=PERSISTENT, workgroup=256)
WAIT_LONGER = "begin_wait(); [[dont_unroll]] for (uint look = 0; look < 100; ++look) count_look_in_vain();"


def test_many_waits_are_not_one_long_wait(device, mistaken, with_profile, caplog):
    """A workgroup gives up after one wait that is too long, but not because all its waits together are too long."""
    with_profile(**LONG_WAITS)
    mistaken("gpu/gru_persistent", "gpu/persistent.glsl", "begin_wait();", WAIT_LONGER)
    case = make_case(cells.GRU, (100, 1, 5, 64), **WITHOUT_LENGTHS)
    _, results = executed(device, case, ONE_PART)
    check(case, results)
    assert GAVE_UP not in caplog.text


def test_who_waits_sees_that_another_has_given_up(device, mistaken, with_profile, monkeypatch):
    """A waiting workgroup sees that another one gave up (a planted mistake sets its flag), and does not set its own flag."""
    with_profile(**LONG_WAITS)
    mistaken("gpu/gru_persistent", "gpu/persistent.glsl", "is_there = max(", "atomicOr(gave_up, 2); is_there = false && max(")
    words, clear = [], _Attempt.clear

    def seen(attempt):
        words.append(int(attempt.flag._take((1,), np.uint32)[0]))
        clear(attempt)

    monkeypatch.setattr(_Attempt, "clear", seen)
    case = make_case(cells.GRU, (5, 1, 5, 64), **WITHOUT_LENGTHS)
    _, results = executed(device, case, ONE_PART)
    check(case, results)
    assert words[1:] == [2]


# Several groups of rows

@pytest.fixture
def with_room(device, monkeypatch):
    """Yield a function: with_room(count) makes the planner assume that the device runs `count` workgroups at once."""
    def make(count):
        monkeypatch.setattr(gpu_loop, "resident_workgroups", lambda loop, target: count)
        plan.ranked.cache_clear()
    yield make
    plan.ranked.cache_clear()


@pytest.mark.family("each way with each cell", diagonal=2)
@pytest.mark.parametrize("cell", [cells.GRU, cells.LSTM, cells.RNN], ids=lambda cell: cell.name)
@pytest.mark.parametrize("way", ["persistent", "persistent, in chunks", "stepped"])
def test_groups_of_rows(device, with_room, way, cell):
    """If the device cannot run all workgroups at once, each gets several tiles of the 20 rows; the last may get none."""
    case = make_case(cell, (4, 20, 5, 20))
    found = []
    for room in (2, 6, 14, 40):
        with_room(room)
        options = replace(WAYS[way].options(case.problem, device.info), rows=2)
        loop = best(Target(case.problem, device.info, options)).loop
        assert isinstance(loop, GpuLoop)
        results = run_on_device(device, case, options)
        check(case, results)
        found.append((loop.tiles, results))
        assert_same(results, found[0][1])
    assert len({tiles for tiles, _ in found}) > 2


# Shared memory too small for both the tile and the sums

@pytest.mark.family("each way with each cell", diagonal=2)
@pytest.mark.parametrize("name", ["GRU", "LSTM in bfloat16", "GRU, linear"])
@pytest.mark.parametrize("way", ["persistent", "stepped, 8 rows", "persistent, in chunks"])
def test_sums_may_take_the_place_of_what_was_multiplied(device, monkeypatch, way, name):
    case = CASES[name]
    options = replace(WAYS[way].options(case.problem, device.info), shared_loads=0)
    room = best(Target(case.problem, device.info, options)).loop.shared_bytes - 1
    expected = in_sequence(device, name)
    monkeypatch.setattr(gpu_loop, "_shared_room", lambda target: room)
    plan.ranked.cache_clear()
    assert best(Target(case.problem, device.info, options)).loop.in_place
    results = run_on_device(device, case, options)
    monkeypatch.undo()
    plan.ranked.cache_clear()
    check(case, results)
    assert_same(results, expected)
