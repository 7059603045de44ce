"""Helpers of tests: draw random problems, run them through DirectML's objects, compare results with the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np

import vkdml
from vkdml.engine.trust.trial import Run, Trial
from vkdml.faces.directml.compiled_operator import CompiledOperator, Operator
from vkdml.operators import cells, checks, element_types, problem, reference
from vkdml.operators.activations import BY_DESC
from vkdml.operators.cells import Cell
from vkdml.operators.element_types import ElementType
from vkdml.operators.header import descs
from vkdml.operators.problem import Problem
from vkdml.planning import profiles
from vkdml.planning.options import PERSISTENT, Options
from vkdml.planning.plan import Plan
from vkdml_lab.suite import describing, recording
from vkdml_lab.suite.guards import POISON, guarded

FLOAT32, UINT32 = vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, vkdml.DML_TENSOR_DATA_TYPE.UINT32
SIGMOID, TANH = vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(), vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()
CELLS = list(cells.BY_DESC.values())

way: str | None = None  # `pytest --way`: a name in OTHER_SCHEDULES that forces this schedule on all problems
base_seed = 0  # seed of random problems: `pytest --seed`

# Relative and absolute tolerance of each type
TOLERANCES = {"float32": (1e-4, 1e-5), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2), "float64": (1e-10, 1e-12)}
RTOL, ATOL = TOLERANCES["float32"]
DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16)} | {name: np.dtype(name) for name in ("float32", "float16", "float64")}

# Ways to run a problem, which must all give right results
SCHEDULES = {
    "default": Options(),
    "fused": Options(fused=True),
    "projected": Options(fused=False),
    "chunked": Options(schedule="sequence", fused=False, chunk_steps=2, workspace_bytes=20000),
    "stepped": Options(schedule="stepped", fused=False),
    "stepped, fused": Options(schedule="stepped", fused=True, parts=3),
    "fused chunked": Options(fused=True, chunk_steps=3),
    "lanes": Options(lanes=True, fused=False, rows=2),
    "lanes, two subgroups": Options(lanes=True, workgroup=1),  # 1 stands for two subgroups
    "resident": Options(resident=True, schedule="sequence"),
    "resident chunked": Options(resident=True, schedule="sequence", rows=3, units_at_once=2, chunk_steps=2, workspace_bytes=20000),
    "resident, in a buffer": Options(resident=True, schedule="sequence", rows=1, shared_state=False, chunk_steps=2),
    "plain": Options(lanes=False),
    "plain streamed": Options(lanes=False, register_loads=0),
    "plain chunked": Options(lanes=False, rows=2, chunk_steps=2, workspace_bytes=20000),
    "plain stepped": Options(lanes=False, schedule="stepped", workgroup=16),
    "plain persistent": Options(lanes=False, schedule="persistent", workgroup=64),
    "plain persistent chunked": Options(lanes=False, schedule="persistent", workgroup=16, rows=3, chunk_steps=2,
                                        workspace_bytes=40000),
}

# Schedules in which a failed problem runs again
OTHER_SCHEDULES = {
    "sequence": Options(schedule="sequence"), "stepped": Options(schedule="stepped"),
    "persistent": Options(lanes=False, schedule="persistent"),
}


def options(device: vkdml.Device, name: str, element: ElementType = element_types.FLOAT32) -> Options:
    """Return SCHEDULES[name], changed to what the device can do (see `options_on`)."""
    return options_on(device.info, name, element)


def options_on(info: vkdml.DeviceInfo, name: str, element: ElementType = element_types.FLOAT32) -> Options:
    """Return SCHEDULES[name], changed to what a device can do. Only CPU drivers that prefer shuffles run kernels with shuffles.
    float64 has kernels of one row and one unit, and none is persistent.
    """
    chosen, profile = SCHEDULES[name], profiles.profile(info)
    if element.pairs:
        schedule = None if chosen.schedule == PERSISTENT else chosen.schedule
        return _of_plain(replace(chosen, schedule=schedule, rows=None, register_loads=None,
                                 workspace_bytes=2 * chosen.workspace_bytes))
    if chosen.lanes is not False and not (profile.prefers_shuffles and info.subgroup_shuffle):
        chosen = replace(_of_plain(chosen), lanes=False)
    if chosen.lanes is False:  # plain kernels always have the projection, and keep the state in shared memory if it fits
        return replace(chosen, fused=None, shared_state=None, parts=None, rows=min(chosen.rows or 0, 8) or None)
    if profile.rates.resident is None:
        chosen = replace(chosen, resident=None)
    return replace(chosen, workgroup=2 * info.subgroup_size) if chosen.workgroup == 1 else chosen


def _of_plain(chosen: Options) -> Options:
    """Return the options without those that only kernels with shuffles have."""
    if not (chosen.lanes or chosen.resident):
        return replace(chosen, units_at_once=None)
    return replace(chosen, lanes=False, resident=None, workgroup=None, units_at_once=None)


def tensor(*sizes: Any, data_type: Any = FLOAT32, **kwargs: Any) -> descs.DML_BUFFER_TENSOR_DESC:
    return descs.DML_BUFFER_TENSOR_DESC(DataType=data_type, Sizes=sizes, **kwargs)


def make_desc(cell: Cell, t: int = 3, b: int = 2, i: int = 4, h: int = 5, d: int = 1, data_type: Any = FLOAT32,
              **changes: Any) -> Any:
    """Make a cell's descriptor with every optional tensor, and its default activations. changes: fields to replace."""
    sizes = {"T": t, "B": b, "I": i, "H": h, "D": d}
    given: dict[str, Any] = {
        field: tensor(*(checks.evaluate(formula, sizes) for formula in formulas),
                      data_type=UINT32 if field == "SequenceLengthsTensor" else data_type)
        for field, formulas in cell.tensors.items()
    }
    given["ActivationDescs"] = ([TANH] if cell.activations == 1 else [SIGMOID, TANH, TANH][:cell.activations]) * d
    given["Direction"] = descs.DML_RECURRENT_NETWORK_DIRECTION(2 if d == 2 else 0)
    return cell.desc(**(given | changes))


def gru_desc(*sizes: int, **changes: Any) -> descs.DML_GRU_OPERATOR_DESC:
    return make_desc(cells.GRU, *sizes, **changes)


@dataclass(frozen=True)
class Case:
    """A recurrent operator's descriptor, and inputs by field. clip: ONNX's attribute. desc has None for unwanted outputs."""

    desc: Any
    clip: float | None
    arrays: dict[str, np.ndarray]
    element: ElementType = element_types.FLOAT32

    @property
    def problem(self) -> Problem:
        return problem.from_desc(self.desc, self.clip, self.element)


def drawn_case(desc: Any, clip: float | None = None, element: ElementType = element_types.FLOAT32, seed: int = 0) -> Case:
    return Case(desc, clip, random_arrays(desc, np.random.default_rng(seed), element), element)


def random_activation(rng: np.random.Generator, element: ElementType) -> descs.ActivationDesc:
    """Draw any activation that a type has, with parameters other than 0. It may let states grow, which `tamed` prevents."""
    rows = [row for row in BY_DESC.values() if row.has_pairs or not element.pairs]
    desc = rows[rng.integers(len(rows))].desc
    names = [field.name for field in fields(desc) if field.type == "float"]
    return desc(**{name: float(rng.choice([-1, 1, 1, 1]) * rng.uniform(0.3, 1.5)) for name in names})


def random_strides(rng: np.random.Generator, sizes: tuple[int, ...], is_input: bool) -> tuple[int, ...]:
    """Draw strides of a tensor: dimensions in random order, with gaps. An input may be broadcast along one dimension."""
    strides, reach = [0] * len(sizes), 1
    broadcast = rng.integers(2 * len(sizes)) if is_input else -1
    for dim in rng.permutation(len(sizes)):
        if dim != broadcast:
            strides[dim] = reach
            reach = reach * sizes[dim] + int(rng.integers(3))
    return tuple(strides)


def random_numbers(*seeds: int) -> np.random.Generator:
    """Return a random generator, seeded by `seeds` and pytest's option --seed."""
    return np.random.default_rng([*seeds, base_seed])


def random_case(seed: int) -> Case:
    """Draw a case of any recurrent operator that descriptors allow, in any type, again and again until `tamed` accepts it."""
    attempts = (tamed(wild_case(CELLS[seed % len(CELLS)], random_numbers(seed, i))) for i in count())
    case = next(case for case in attempts if case is not None)
    return replace(case, desc=owned(case.desc)) if seed % 5 == 0 else case


def owned(desc: Any) -> Any:
    """Return the descriptor with the flag OWNED_BY_DML on all weights: an initializer then packs them once."""
    flags = descs.DML_TENSOR_FLAGS.OWNED_BY_DML
    return replace(desc, **{field: replace(getattr(desc, field), Flags=flags) for field in problem.WEIGHTS
                            if getattr(desc, field, None) is not None})


def wild_case(cell: Cell, rng: np.random.Generator,
              activation: Callable[[np.random.Generator, ElementType], Any] = random_activation) -> Case:
    element = element_types.ALL[rng.choice(len(element_types.ALL), p=[0.5, 0.2, 0.15, 0.15])]
    t, b = int(rng.integers(1, 13)), int(rng.integers(1, 10))
    i, h = (int(size) for size in rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 33, 40], 2))
    direction = int(rng.integers(3))
    d = 2 if direction == 2 else 1
    changes: dict[str, Any] = {field: None for field in cell.tensors if field not in cell.required and rng.random() < 0.3}
    if set(cell.outputs) <= set(changes):
        del changes["OutputSingleTensor"]
    if rng.random() < 0.7:
        changes["ActivationDescs"] = [activation(rng, element) for _ in range(cell.activations * d)]
    changes |= {flag: bool(rng.integers(2)) for flag in cell.flags}
    changes["Direction"] = descs.DML_RECURRENT_NETWORK_DIRECTION(direction)
    desc = make_desc(cell, t, b, i, h, d, data_type=element.data_type, **changes)
    if rng.random() < 0.4:
        given = [field for field in cell.tensors if getattr(desc, field) is not None and rng.random() < 0.5]
        desc = replace(desc, **{field: replace(getattr(desc, field), Strides=random_strides(
            rng, getattr(desc, field).Sizes, field in cell.inputs)) for field in given})
    clip = float(rng.choice([0, 1, 1, 1]) * rng.uniform(0.05, 1.5)) if rng.random() < 0.25 else None
    return Case(desc, clip, random_arrays(desc, rng, element), element)


def tamed(case: Case) -> Case | None:
    """Halve the weights until outputs are below 100, and a change of the inputs' last bits moves outputs by less than a tenth
    of the tolerance. Otherwise, mere rounding could fail a test. Returns the case, or None if no weights are small enough.
    """
    checked = case.problem
    rtol, atol = TOLERANCES[case.element.name]
    last_bit = 4e-15 if case.element.pairs else 6e-8
    rng = np.random.default_rng(0)
    for _ in range(20):
        results = all_outputs(checked, case.arrays)
        nudged = {field: array * (1 + rng.choice([-last_bit, last_bit], array.shape)) if array.dtype != np.uint32 else array
                  for field, array in case.arrays.items()}
        with np.errstate(invalid="ignore"):
            change = np.abs(all_outputs(checked, nudged) - results)
        if np.abs(results).max() < 100 and (change < 0.1 * (atol + rtol * np.abs(results))).all():
            return case
        for field in checked.weights:
            if field in case.arrays:
                case.arrays[field] *= case.arrays[field].dtype.type(0.5)
    return None


def all_outputs(checked: Problem, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([result.reshape(-1) for result in reference.run(checked, arrays).values()])


def random_arrays(desc: Any, rng: np.random.Generator, element: ElementType = element_types.FLOAT32) -> dict[str, np.ndarray]:
    """Draw inputs by field: of about unit size, but weights that keep sums at that size. With strides, arrays are flat."""
    checked = problem.from_desc(desc, element=element)
    arrays = {}
    for field in checked.inputs:
        if not checked.has(field):
            continue
        described = checked.tensor(field)
        shape = described.sizes if getattr(desc, field).Strides is None else (described.size_of_elements,)
        scale = {"WeightTensor": checked.input_size, "RecurrenceTensor": checked.hidden, "BiasTensor": 4,
                 "PeepholeTensor": 4}.get(field, 1) ** -0.5
        if field == "SequenceLengthsTensor":
            arrays[field] = rng.integers(0, checked.steps + 1, shape).astype(np.uint32)
        else:
            arrays[field] = (rng.standard_normal(shape) * scale).astype(DTYPES[element.name])
        if getattr(desc, field).Strides is not None:
            is_gap = np.ones(shape, bool)
            described.view(is_gap)[...] = False
            arrays[field][is_gap] = POISON if field == "SequenceLengthsTensor" else np.nan
    return arrays


def run_on_device(device: vkdml.Device, case: Case, options: Options = Options()) -> dict[str, np.ndarray]:
    """Run a case through DirectML's objects. Returns outputs by field. Checks that gaps and guards do not change."""
    options = OTHER_SCHEDULES[way] if way else options
    with guarded() as guards:
        results = _run_on_device(device, case, options)
        guards.check()
    ways = {name: partial(run_on_device, device, case, forced) for name, forced in OTHER_SCHEDULES.items()}
    recording.RUNNING.can_run_again(partial(run_on_device, device, case, options), ways)
    return results


def _run_on_device(device: vkdml.Device, case: Case, options: Options) -> dict[str, np.ndarray]:
    compiled = device.compile_operator(Operator(case.problem), options=options)
    buffers = {field: device.upload(array) for field, array in case.arrays.items()}
    outputs = make_outputs(device, compiled)
    initialize(device, compiled, buffers)
    execute(device, compiled, buffers, outputs)
    return {field: read_output(compiled, field, buffer) for field, buffer in outputs.items()}


def execute(device: vkdml.Device, compiled: CompiledOperator, inputs: Mapping[str, vkdml.Buffer],
            outputs: Mapping[str, vkdml.Buffer], times: int = 1) -> None:
    """Record a dispatch, and execute it `times` times. inputs, outputs: buffers by field; packed weights are not bound."""
    table = device.create_binding_table(compiled)
    weights = compiled.problem.initialized
    table.bind_inputs([inputs.get(field) if field not in weights else None for field in compiled.input_fields])
    table.bind_outputs([outputs.get(field) for field in compiled.output_fields])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(compiled, table)
    for _ in range(times):
        recorder.execute()


def run_over_pattern(device: vkdml.Device, problem: Any, planned: Plan, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a plan, and return the bytes of its outputs, by field. All are 0xA5 before, so that unwritten bytes show."""
    trial = Trial(device.gpu, problem, arrays)
    for field in filter(problem.has, problem.outputs):
        trial.buffers[field].upload(np.full(trial.buffers[field].size_in_bytes, 0xA5, np.uint8))
    Run(trial, planned).execute()
    return trial.outputs()


def make_outputs(device: vkdml.Device, compiled: CompiledOperator) -> dict[str, vkdml.Buffer]:
    """Make an operator's output buffers, by field. They are full of NaN, so that unwritten elements show."""
    dtype = DTYPES[compiled.problem.element.name]
    sizes = {field: compiled.problem.tensor(field).size_in_bytes // dtype.itemsize
             for field in compiled.output_fields if compiled.problem.has(field)}
    return {field: device.upload(np.full(size, np.nan, dtype)) for field, size in sizes.items()}


def read_output(compiled: CompiledOperator, field: str, buffer: vkdml.Buffer) -> np.ndarray:
    described = compiled.problem.tensor(field)
    flat = buffer.download((described.size_of_elements,), DTYPES[compiled.problem.element.name])
    is_gap = np.ones(flat.size, bool)
    described.view(is_gap)[...] = False
    assert np.isnan(flat[is_gap]).all(), f"{field}: something was written between its elements"
    return described.view(flat).copy()


def initialize(device: vkdml.Device, compiled: CompiledOperator, buffers: Mapping[str, vkdml.Buffer]) -> None:
    initializer = device.create_operator_initializer(compiled)
    table = device.create_binding_table(initializer)
    weights = compiled.problem.initialized
    table.bind_inputs([buffers.get(field) if field in weights else None for field in compiled.input_fields])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(initializer, table)
    recorder.execute()


def check(case: Case, results: Mapping[str, np.ndarray]) -> None:
    """Compare the outputs of a case, by field, with the float64 reference. Raises AssertionError if one is wrong."""
    checked = case.problem
    expected = {field: array for field, array in reference.run(checked, case.arrays).items() if checked.has(field)}
    assert_close(checked.cell.name, case.element, subnormal(case), results, expected, checked)


def assert_close(operator: str, element: ElementType, features: Iterable[str], results: Mapping[str, np.ndarray],
                 expected: Mapping[str, np.ndarray], checked: Problem | None = None) -> None:
    """Compare outputs by name, within the tolerance of their type. Records the comparison, before it raises AssertionError."""
    assert set(results) == set(expected)
    for result in results.values():
        assert result.dtype.name == element.name
    recording.compare(operator, element.name, features, results, expected, TOLERANCES[element.name], checked)


def assert_same(results: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Compare outputs by name, bit for bit. Records the comparison, before it raises AssertionError."""
    assert set(results) == set(expected)
    ran = recording.RUNNING.last
    recording.compare(describing.name(ran.problem) if ran else "", "its bits", [], results, expected, recording.EXACTLY)


def subnormal(case: Case) -> set[str]:
    """Return {"subnormal inputs"}, for reports, if inputs are subnormal (some drivers take them as 0), else an empty set."""
    least = float(ml_dtypes.finfo(case.element.name).smallest_normal)
    sizes = [np.abs(array.astype(np.float64)) for array in case.arrays.values()]
    return {"subnormal inputs"} if any(((size > 0) & (size < least)).any() for size in sizes) else set()
