"""What tests share: random problems, and running one through DirectML's life cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

import vkdml
from vkdml import cells, descs, problem, reference
from vkdml.activations import BY_DESC
from vkdml.cells import Cell
from vkdml.operator import INITIALIZED, CompiledOperator
from vkdml.schedule import Options

FLOAT32, UINT32 = vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, vkdml.DML_TENSOR_DATA_TYPE.UINT32
SIGMOID, TANH = vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(), vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()
RTOL, ATOL = 1e-4, 1e-5
CELLS = list(cells.BY_DESC.values())

# Every way to run a problem. None of them may change a result.
SCHEDULES = {
    "default": Options(),
    "fused": Options(fused=True),
    "projected": Options(fused=False),
    "chunked": Options(fused=False, chunk_steps=2),
    "fused chunked": Options(fused=True, chunk_steps=3),
    "lanes": Options(lanes=True, fused=False, rows=2),
    "lanes, two subgroups": Options(lanes=True, workgroup=0),  # 0: made two subgroups by `options`
    "plain": Options(lanes=False, fused=False),
    "plain fused": Options(lanes=False, fused=True, rows=3),
    "plain in a buffer": Options(lanes=False, shared_state=False, workgroup=64),
    "plain chunked": Options(lanes=False, fused=False, chunk_steps=2, workgroup=1),
}


def options(device: vkdml.Device, name: str) -> Options:
    """A schedule for a device. The kernels that shuffle are for CPU drivers; GPUs get the plain ones throughout."""
    chosen, info = SCHEDULES[name], device.info
    if chosen.lanes and not (info.is_cpu and info.subgroup_shuffle):
        return replace(chosen, lanes=False, workgroup=None)
    return replace(chosen, workgroup=2 * info.subgroup_size) if chosen.workgroup == 0 else chosen


def tensor(*sizes: Any, data_type: Any = FLOAT32, **kwargs: Any) -> descs.DML_BUFFER_TENSOR_DESC:
    return descs.DML_BUFFER_TENSOR_DESC(DataType=data_type, Sizes=sizes, **kwargs)


def make_desc(cell: Cell, t: int = 3, b: int = 2, i: int = 4, h: int = 5, d: int = 1, **changes: Any) -> Any:
    """A descriptor with every optional tensor, and changes to it."""
    sizes = {"T": t, "B": b, "I": i, "H": h, "D": d}
    given: dict[str, Any] = {
        field: tensor(*(problem.evaluate(formula, sizes) for formula in formulas),
                      data_type=UINT32 if field == "SequenceLengthsTensor" else FLOAT32)
        for field, formulas in cell.tensors.items()
    }
    given["ActivationDescs"] = ([TANH] if cell.activations == 1 else [SIGMOID, TANH, TANH][:cell.activations]) * d
    given["Direction"] = descs.DML_RECURRENT_NETWORK_DIRECTION(2 if d == 2 else 0)
    return cell.desc(**(given | changes))


def gru_desc(*sizes: int, **changes: Any) -> descs.DML_GRU_OPERATOR_DESC:
    return make_desc(cells.GRU, *sizes, **changes)


@dataclass(frozen=True)
class Case:
    """A problem with its inputs; what is not wanted of the outputs is None in the problem."""

    desc: Any
    clip: float | None
    arrays: dict[str, np.ndarray]


def random_activation(rng: np.random.Generator) -> descs.ActivationDesc:
    """Any activation; parameters that keep a recurrence from growing."""
    desc = list(BY_DESC)[rng.integers(len(BY_DESC))]
    names = [field.name for field in fields(desc) if field.type == "float"]
    return desc(**{name: float(rng.uniform(0.3, 0.9)) for name in names})


def random_case(seed: int) -> Case:
    """A random operator over all that its descriptor can say."""
    rng = np.random.default_rng(seed)
    cell = CELLS[seed % len(CELLS)]
    t, b = int(rng.integers(1, 13)), int(rng.integers(1, 10))
    i, h = (int(size) for size in rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 33, 40], 2))
    direction = int(rng.integers(3))
    d = 2 if direction == 2 else 1
    changes: dict[str, Any] = {field: None for field in cell.tensors if field not in cell.required and rng.random() < 0.3}
    if set(cell.outputs) <= set(changes):
        del changes["OutputSingleTensor"]
    if rng.random() < 0.7:
        changes["ActivationDescs"] = [random_activation(rng) for _ in range(cell.activations * d)]
    changes |= {flag: bool(rng.integers(2)) for flag in cell.flags}
    changes["Direction"] = descs.DML_RECURRENT_NETWORK_DIRECTION(direction)
    desc = make_desc(cell, t, b, i, h, d, **changes)
    clip = float(rng.uniform(0.05, 1.5)) if rng.random() < 0.25 else None
    return tamed(Case(desc, clip, random_arrays(desc, rng)))


def tamed(case: Case) -> Case:
    """With smaller weights, while unbounded activations make the recurrence grow, or make a change of the inputs in their
    last bit a tenth of the tolerance: no arithmetic in float32 can agree with float64 on such a problem.
    """
    checked = problem.from_desc(case.desc, case.clip)
    rng = np.random.default_rng(0)
    for _ in range(10):
        results = reference.run(checked, case.arrays)["OutputSequenceTensor"]
        nudged = {field: array * (1 + rng.choice([-6e-8, 6e-8], array.shape)) if array.dtype == np.float32 else array
                  for field, array in case.arrays.items()}
        with np.errstate(invalid="ignore"):
            change = np.abs(reference.run(checked, nudged)["OutputSequenceTensor"] - results)
        if np.abs(results).max() < 10 and (change < 0.1 * (ATOL + RTOL * np.abs(results))).all():
            break
        for field in INITIALIZED:
            if field in case.arrays:
                case.arrays[field] *= np.float32(0.5)
    return case


def random_arrays(desc: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of about unit size, and weights that keep pre-activations of about unit size."""
    checked = problem.from_desc(desc)
    arrays = {}
    for field in checked.cell.inputs:
        if checked.tensors[field] is None:
            continue
        sizes = checked.tensor(field).sizes
        scale = {"WeightTensor": checked.inputs, "RecurrenceTensor": checked.hidden, "BiasTensor": 4,
                 "PeepholeTensor": 4}.get(field, 1) ** -0.5
        arrays[field] = (rng.standard_normal(sizes) * scale).astype(np.float32)
    if "SequenceLengthsTensor" in arrays:
        arrays["SequenceLengthsTensor"] = rng.integers(0, checked.steps + 1, (1, 1, 1, checked.batch)).astype(np.uint32)
    return arrays


def run_on_device(device: vkdml.Device, case: Case, options: Options = Options()) -> dict[str, np.ndarray]:
    """DirectML's life cycle: create, compile, initialize, bind, record, execute."""
    compiled = device.compile_operator(device.create_operator(case.desc, clip=case.clip), options=options)
    buffers = {field: device.upload(array) for field, array in case.arrays.items()}
    outputs = make_outputs(device, compiled)
    initialize(device, compiled, buffers)
    table = device.create_binding_table(compiled)
    table.bind_inputs([buffers.get(field) if field not in INITIALIZED else None for field in compiled.input_fields])
    table.bind_outputs([outputs.get(field) for field in compiled.output_fields])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(compiled, table)
    recorder.execute()
    return {field: buffer.download(compiled.problem.tensor(field).sizes) for field, buffer in outputs.items()}


def make_outputs(device: vkdml.Device, compiled: CompiledOperator) -> dict[str, vkdml.Buffer]:
    """Output buffers full of NaN, so that what is not written is seen."""
    fields = [field for field in compiled.output_fields if compiled.problem.tensors[field]]
    sizes = {field: compiled.problem.tensor(field).size_in_bytes // 4 for field in fields}
    return {field: device.upload(np.full(size, np.nan, np.float32)) for field, size in sizes.items()}


def initialize(device: vkdml.Device, compiled: CompiledOperator, buffers: Mapping[str, vkdml.Buffer]) -> None:
    initializer = device.create_operator_initializer(compiled)
    table = device.create_binding_table(initializer)
    table.bind_inputs([buffers.get(field) if field in INITIALIZED else None for field in compiled.input_fields])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(initializer, table)
    recorder.execute()


def check(case: Case, results: Mapping[str, np.ndarray]) -> None:
    """All that the case asks for, against the float64 reference."""
    checked = problem.from_desc(case.desc, case.clip)
    expected = reference.run(checked, case.arrays)
    assert set(results) == {field for field in checked.cell.outputs if checked.tensors[field]}
    for field, result in results.items():
        np.testing.assert_allclose(result, expected[field], rtol=RTOL, atol=ATOL, err_msg=field)
