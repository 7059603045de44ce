"""Tests every kind of recurrent problem that descriptors allow, in every schedule, against the float64 reference."""

from dataclasses import replace

import numpy as np
import pytest

import vkdml
from vkdml.operators import cells, element_types
from vkdml.operators.activations import BY_DESC
from vkdml.operators.header import descs
from vkdml.planning import profiles
from vkdml.planning.options import SCHEDULES as SCHEDULE_NAMES
from vkdml_lab.suite.sharpest import drawn
from vkdml_lab.suite.support import (
    CELLS,
    SCHEDULES,
    Case,
    check,
    drawn_case,
    gru_desc,
    make_desc,
    options,
    random_case,
    random_numbers,
    run_on_device,
)


def schedule_of(seed):
    """Return the name, in SCHEDULES, of a random problem's schedule. Among all seeds, each cell meets each schedule."""
    return list(SCHEDULES)[seed // len(CELLS) % len(SCHEDULES)]


@drawn("random shapes, attributes and types", 450)
def test_random_problem(device, seed):
    case = random_case(seed)
    check(case, run_on_device(device, case, options(device, schedule_of(seed), case.element)))


@pytest.mark.parametrize("seed", range(450, 10_000))
def test_random_problem_long(device, seed):
    test_random_problem(device, seed)


@drawn("random shapes, attributes and types", 100)
def test_random_problem_as_on_a_gpu(device, seed, monkeypatch):
    """Any driver is right with a GPU's plans (wide workgroups that load weights in blocks) within its limit of iterations."""
    usual = profiles.profile(device.info)
    as_on_a_gpu = replace(profiles.PROFILES["other GPUs"], is_cpu=usual.is_cpu, most_iterations=usual.most_iterations, spins=usual.spins)
    monkeypatch.setattr(profiles, "PROFILES", {"as on a GPU": as_on_a_gpu})
    test_random_problem(device, seed)


FORCED = {"schedule": SCHEDULE_NAMES, "parts": [1, 2, 3, 5], "rows": [1, 2, 3, 4, 5, 8, 9, 16, 32], "units_at_once": [1, 2, 3],
          "workgroup": [4, 8, 16, 32, 64, 128], "chunk_steps": [1, 2, 5], "workspace_bytes": [1000, 5000, 20_000, 100_000],
          "register_loads": [0, 1, 2, 3], "shared_loads": [0, 1, 3],
          **{name: [False, True] for name in ("fused", "lanes", "resident", "shared_state")}}
# Forced options, and the names that are drawn with them: for CPU drivers' kernels, GPUs', GPUs' in sequence, and all
FAMILIES = [({}, ["schedule", "parts", "fused", "resident", "rows", "units_at_once", "workgroup", "shared_state"]),
            ({"lanes": False}, ["schedule", "parts", "rows", "workgroup", "register_loads", "shared_loads"]),
            ({"lanes": False, "schedule": "sequence"}, ["rows", "workgroup", "register_loads", "shared_loads", "chunk_steps"]),
            ({}, list(FORCED))]


def random_options(seed):
    """Draw one to four options that suit a family of kernels. Returns values by name, with those that choose the family."""
    rng, (anyway, names) = random_numbers(seed, 1), FAMILIES[seed % len(FAMILIES)]
    return {name: FORCED[name][rng.integers(len(FORCED[name]))] for name in rng.choice(names, rng.integers(1, 5), replace=False)} | anyway


@drawn("random options", 160)
def test_random_options(device, seed):
    """With random options, results are right, or the error names one of these options and its value."""
    case, forced = random_case(seed), random_options(seed)
    try:
        results = run_on_device(device, case, vkdml.Options(**forced))
    except vkdml.InvalidArgumentError as error:
        name = error.field.removeprefix("options.")
        assert name in forced, error  # noqa: PT017  (either outcome is right)
        assert f"found {forced[name]!r}; expected " in str(error)  # noqa: PT017
    else:
        check(case, results)


@pytest.mark.parametrize("seed", range(160, 10_000))
def test_random_options_long(device, seed):
    test_random_options(device, seed)


# Cells and flags: each way through a time step once
VARIANTS = {"GRU": (cells.GRU, {}), "GRU linear": (cells.GRU, {"LinearBeforeReset": True}), "LSTM": (cells.LSTM, {}),
            "LSTM coupled": (cells.LSTM, {"CoupleInputForget": True, "PeepholeTensor": None}), "RNN": (cells.RNN, {})}


@pytest.mark.family("each schedule with each cell", diagonal=9)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule(device, schedule, variant):
    check_variant(device, schedule, variant, (9, 7, 10, 21), [9, 0, 1, 5, 8, 2, 9])


@pytest.mark.family("each schedule in parts with each cell", diagonal=3)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if "stepped" in name or "persistent" in name])
def test_one_step(device, schedule, variant):
    """Schedules that share a step among workgroups are right for one step, in which no workgroup has to wait."""
    check_variant(device, schedule, variant, (1, 7, 10, 45), [1, 0, 1, 1, 0, 1, 1])


def check_variant(device, schedule, variant, shape, lengths):
    """Run and check a bidirectional case. variant: name in VARIANTS. shape: T, B, I and H. lengths: of the rows."""
    cell, flags = VARIANTS[variant]
    case = drawn_case(make_desc(cell, *shape, 2, **flags), 0.2, seed=5)
    case.arrays["SequenceLengthsTensor"] = np.array(lengths, np.uint32).reshape(1, 1, 1, -1)
    check(case, run_on_device(device, case, options(device, schedule)))


@pytest.mark.family("each shape with each cell", diagonal=4)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 70, 3, 5), (3, 2, 129, 130), (1, 40, 257, 3), (300, 1, 2, 3),
                                   (2, 17, 64, 300), (26, 40, 300, 40)])
def test_shape(device, shape, cell):
    case = drawn_case(make_desc(cell, *shape), seed=1)
    check(case, run_on_device(device, case))


@pytest.mark.parametrize("schedule", ["default", "plain"])
def test_wide_input(device, schedule):
    """Results are right, or the call is refused, if a loop over X's columns exceeds some drivers' limit of iterations."""
    case = drawn_case(gru_desc(2, 1, 300_000, 1, SequenceLengthsTensor=None), seed=6)
    try:
        results = run_on_device(device, case, options(device, schedule))
    except vkdml.InvalidArgumentError as error:
        assert error.field in ("sizes", "options.lanes", "options.fused", "packed input weights")  # noqa: PT017  (either outcome is right)
    else:
        check(case, results)


@pytest.mark.family("each shape with some schedules and each cell", diagonal=2)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("schedule", ["default", "plain", "resident"])
@pytest.mark.parametrize("shape", [(1000, 1, 128, 128), (40, 3, 8, 512), (20000, 1, 1, 4), (3, 1, 5, 1100), (1, 1, 5, 1100)])
def test_long_and_wide(device, shape, schedule, variant):
    """Results are right, or the call is refused, if a loop over steps or units exceeds some drivers' limit of iterations."""
    cell, flags = VARIANTS[variant]
    case = drawn_case(make_desc(cell, *shape, SequenceLengthsTensor=None, **flags), seed=4)
    try:
        results = run_on_device(device, case, options(device, schedule))
    except vkdml.InvalidArgumentError as error:
        assert (error.field, shape[3]) == (f"options.{schedule.replace(' ', '_')}", 1100)  # noqa: PT017  (either outcome is right)
    else:
        check(case, results)


@pytest.mark.family("each shape with each cell", diagonal=2)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [(200, 1, 64, 64), (3, 2, 5, 1100), (2, 1, 1100, 70), (9, 20, 30, 130)])
def test_long_and_wide_float64(device, shape, variant):
    """float64 results are right for many steps or units. float64 needs more iterations than float32, so shapes differ."""
    cell, flags = VARIANTS[variant]
    element = element_types.FLOAT64
    desc = make_desc(cell, *shape, data_type=element.data_type, SequenceLengthsTensor=None, **flags)
    case = drawn_case(desc, element=element, seed=4)
    check(case, run_on_device(device, case))


@pytest.mark.family("each activation on usual and huge inputs; test_elementwise.py has all", first=6)
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("activation", BY_DESC, ids=lambda desc: desc.__name__.split("_")[2])
def test_activation(device, activation, scale):
    """Each activation is right and finite as f and as g, on usual and huge inputs: no intermediate may overflow."""
    desc = gru_desc(1, 4, 3, 40, ActivationDescs=[activation(), activation()], HiddenInitTensor=None,
                    SequenceLengthsTensor=None, BiasTensor=None)
    case = drawn_case(desc, seed=2)
    case.arrays["InputTensor"] *= np.float32(scale)
    results = run_on_device(device, case)
    assert all(np.isfinite(result).all() for result in results.values())
    check(case, results)


@pytest.mark.family("each activation with each special value, clipped and not; test_elementwise.py has all", first=12)
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("activation", BY_DESC, ids=lambda desc: desc.__name__.split("_")[2])
def test_special_values_propagate(device, activation, special, clip):
    """NaN or infinity in one row gives the reference's results in that row, and does not change the other."""
    desc = gru_desc(3, 2, 4, 9, ActivationDescs=[activation(), activation()], SequenceLengthsTensor=None)
    case = drawn_case(desc, clip, seed=3)
    case.arrays["RecurrenceTensor"] *= np.float32(0.1)  # keeps the finite row within float32's range
    case.arrays["InputTensor"][0, 1, 0, 2] = special
    check(case, run_on_device(device, case))


@pytest.mark.family("each cell with each special value in each type")
@pytest.mark.parametrize("element", element_types.ALL, ids=lambda element: element.name)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_special_values_in_states(device, cell, special, element):
    """Results are right if initial states have NaN or infinity, or if steps of X past a row's length do."""
    desc = make_desc(cell, 3, 3, 4, 9, data_type=element.data_type, **dict.fromkeys(["PeepholeTensor"] if cell.peepholes else []))
    case = drawn_case(desc, element=element, seed=3)
    case.arrays["SequenceLengthsTensor"] = np.array([3, 0, 2], np.uint32)
    case.arrays["InputTensor"][0, 2, 2] = special
    for field in {"HiddenInitTensor", "CellMemInitTensor"} & set(case.arrays):
        case.arrays[field][0, 0, :2, ::2] = special
    check(case, run_on_device(device, case))


@pytest.mark.parametrize("element", [element_types.FLOAT32, element_types.FLOAT64], ids=lambda element: element.name)
@pytest.mark.parametrize("x", [0.5, -0.5])
@pytest.mark.parametrize("activation", [descs.DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC(Alpha=0.5),
                                        descs.DML_ACTIVATION_SHRINK_OPERATOR_DESC(Bias=0.25, Threshold=0.5)], ids=repr)
def test_at_the_threshold(device, activation, x, element):
    """At the threshold itself, ThresholdedRelu and Shrink give 0."""
    desc = make_desc(cells.RNN, 1, 1, 1, 1, data_type=element.data_type, ActivationDescs=[activation], BiasTensor=None,
                     HiddenInitTensor=None, SequenceLengthsTensor=None)
    arrays = {field: np.full((1, 1, 1, 1), value, element.name)
              for field, value in {"WeightTensor": 1, "RecurrenceTensor": 1, "InputTensor": x}.items()}
    case = Case(desc, None, arrays, element)
    results = run_on_device(device, case)
    check(case, results)
    assert (results["OutputSingleTensor"] == 0).all()
