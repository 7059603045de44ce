"""Dispatches have what their kernels declare: by names, so that nothing is bound or pushed in the wrong place."""

from itertools import product

import pytest

from tests.planning.devices import CPU, GPU, make_problem
from tests.support import CELLS, SCHEDULES, options_on
from vkdml.planning.candidates import Planner
from vkdml.planning.dispatches import pack, time_loop
from vkdml.planning.options import Options
from vkdml.planning.plan import plan
from vkdml.runtime.kernels import load
from vkdml.spec import cells, element_types

PUSH = ["first_step", "last_step", "phase", "gates_step", "steps"]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("info", [CPU, GPU], ids=lambda info: info.name)
def test_kernels_find_what_they_declare(info, name):
    for cell, element in product(CELLS, element_types.ALL):
        planned = plan(make_problem(9, 7, 10, 21, cell=cell, element=element), info, options_on(info, name, element))
        for dispatch in {dispatch.kernel: dispatch for dispatch in planned.initialize + planned.execute + planned.fallback}.values():
            declared = load(dispatch.kernel).interface
            assert set(declared.constant_ids) <= set(dispatch.constants)
            assert set(declared.push) <= set(dispatch.push)
            blocks = set().union(*declared.bindings.values())
            assert set(dispatch.buffers) <= blocks


@pytest.mark.parametrize(("info", "element", "options", "kernels"), [
    (GPU, "FLOAT32", Options(schedule="sequence", fused=False), {"gpu/projection", "gpu/lstm"}),
    (GPU, "FLOAT32", Options(schedule="sequence", fused=True), {"gpu/lstm_fused"}),
    (GPU, "FLOAT16", Options(schedule="stepped", fused=False), {"gpu/projection", "gpu/lstm_parts"}),
    (GPU, "FLOAT32", Options(schedule="persistent", fused=True), {"gpu/lstm_parts_fused"}),
    (CPU, "FLOAT32", Options(lanes=False, schedule="sequence", fused=True), {"gpu/lstm_fused"}),
    (CPU, "FLOAT32", Options(schedule="sequence", fused=True), {"cpu/lstm_lanes"}),
    (CPU, "BFLOAT16", Options(schedule="stepped", fused=False, projection_row_lanes=False), {"cpu/projection_lanes", "cpu/lstm_lanes"}),
    (CPU, "FLOAT32", Options(row_lanes=True, schedule="sequence"), {"cpu/projection_rows", "cpu/lstm_rows"}),
    (CPU, "FLOAT32", Options(resident=True, projection_row_lanes=True, schedule="sequence"), {"cpu/projection_rows", "cpu/lstm_resident"}),
    (CPU, "FLOAT64", Options(schedule="sequence", fused=False), {"float64/projection", "float64/lstm"}),
    (GPU, "FLOAT64", Options(schedule="persistent", fused=True), {"float64/lstm"}),
])
def test_kernels(info, element, options, kernels):
    planned = plan(make_problem(4, 3, 10, 45, cell=cells.LSTM, element=getattr(element_types, element)), info, options)
    assert {dispatch.kernel for dispatch in planned.execute} == kernels
    assert {dispatch.kernel for dispatch in planned.initialize} == {"float64/pack" if element == "FLOAT64" else "pack"}


@pytest.mark.parametrize("fused", [False, True])
def test_buffers_are_bound_by_their_blocks(fused):
    tiling = Planner(make_problem(4, 3, 10, 45, cell=cells.LSTM), GPU, Options(schedule="sequence", fused=fused)).best()
    *projections, loop = time_loop(tiling)
    of_input = {"Input": "InputTensor", "InputWeights": "packed input weights"}
    assert loop.buffers == {
        "State": "state", "HiddenWeights": "packed recurrent weights", "SequenceLengths": "SequenceLengthsTensor",
        "HiddenInit": "HiddenInitTensor", "CellMemInit": "CellMemInitTensor", "OutputSequence": "OutputSequenceTensor",
        "OutputSingle": "OutputSingleTensor", "OutputCellSingle": "OutputCellSingleTensor",
        **(of_input if fused else {"Gates": "gates"})}
    assert set(loop.writes) == {"state", "OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor"}
    assert list(loop.push) == PUSH
    for projection in projections:
        assert projection.buffers == of_input | {"SequenceLengths": "SequenceLengthsTensor", "Gates": "gates"}
        assert (projection.writes, list(projection.push)) == (("gates",), PUSH)
    assert [dispatch.buffers for dispatch in pack(tiling, GPU)] == [
        {"Weights": "WeightTensor", "Bias": "BiasTensor", "Packed": "packed input weights"},
        {"Weights": "RecurrenceTensor", "Bias": "BiasTensor", "Peephole": "PeepholeTensor", "Packed": "packed recurrent weights"}]


def test_what_is_left_out_is_not_bound():
    optional = dict.fromkeys(["SequenceLengthsTensor", "HiddenInitTensor", "BiasTensor", "OutputSequenceTensor"])
    tiling = Planner(make_problem(4, 3, 10, 45, **optional), GPU, Options(schedule="sequence", fused=False)).best()
    projection, loop = time_loop(tiling)
    assert set(projection.buffers) == {"Input", "InputWeights", "Gates"}
    assert set(loop.buffers) == {"State", "HiddenWeights", "Gates", "OutputSingle"}
    assert loop.writes == ("state", "OutputSingleTensor")
    assert [set(dispatch.buffers) for dispatch in pack(tiling, GPU)] == [{"Weights", "Packed"}] * 2


@pytest.mark.parametrize(("options", "columns", "slots"), [(Options(row_lanes=True), 16, 3), (Options(resident=True), 32, 2)])
def test_numbers_that_the_kernels_share(options, columns, slots):
    loop = plan(make_problem(4, 3, 10, 45), CPU, options).execute[-1].constants
    assert (loop["ARRAY_COLUMNS"], loop["SHARED_SLOTS"], loop["QUICK_SPINS"]) == (columns, slots, 32)


def test_one_step_in_parts_is_one_dispatch():
    problem = make_problem(1, 4, 64, 128, LinearBeforeReset=True)
    [dispatch] = plan(problem, CPU, Options(schedule="stepped", fused=True)).execute
    assert dispatch.constants["OWN_STATES"] == 1
    assert dispatch.groups[2] == dispatch.constants["PARTS"] > 1


def test_stepped_makes_the_state_first():
    planned = plan(make_problem(3, 4, 64, 128), GPU, Options(schedule="stepped", fused=True))
    pushes = [(push["first_step"], push["last_step"], push["phase"]) for push in (dispatch.push for dispatch in planned.execute)]
    assert pushes == [(0, 0, 0)] + [(step, step + 1, phase) for step in range(3) for phase in range(2)]
