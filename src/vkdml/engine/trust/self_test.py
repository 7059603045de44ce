"""The self-test: kernels compute small problems, which the float64 reference checks.

On request it runs each kernel that a device may be given. If the driver is not a known one, each operator's own pipelines, with
its constants and persistent ones too, compute a small problem before their first use (`check`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import COMPUTES_WRONGLY, DriverError, VerificationError, expect_ours
from ...operators import cells, element_types, plain_problem, table
from ...operators.cells import Cell
from ...operators.checks import least_tensor
from ...operators.copy_problem import CopyProblem
from ...operators.correctness import SEQUENCE, differences, with_sequence
from ...operators.element_types import ElementType
from ...operators.header import descs
from ...operators.header.descs import DML_BUFFER_TENSOR_DESC, DML_TENSOR_DATA_TYPE
from ...operators.plain_problem import CastProblem, ElementwiseProblem, PlainProblem, common_fields
from ...operators.problem import Problem
from ...planning.device_info import DeviceInfo
from ...planning.options import Options
from ...planning.plain import plan as plan_plain
from ...planning.plan import Plan, fit, plan_of, tilings
from ...planning.size_classes import Sizes, resized
from ...planning.tiling import Target
from ..commands import storage_buffers
from ..vulkan import spirv
from ..vulkan.gpu import Gpu, OnceForEachGpu
from .choices import Choices
from .trial import Run, Trial, forward_problem, random_memory

_log = logging.getLogger(__name__)

ON, OFF = "on", "off"  # values of VKDML_SELFTEST

# Sizes of the problems: they take several tiles and workgroups, none of them full
_SIZES = {"T": 5, "B": 3, "I": 5, "H": 21, "D": 1}
_MOST_STEPS, _WHOLE_TILES = 8, 3  # of an operator's own sample
_MOST_ELEMENTS = 2**17  # of a tensor of an operator without a time loop
_FLOAT64_TOLERANCE = 1e-12

ACTIVATION = "activation"
# The cells with their flags, by kind
_CELLS: dict[str, tuple[Cell, dict[str, bool]]] = {
    "GRU": (cells.GRU, {}), "GRU, linear before reset": (cells.GRU, {"LinearBeforeReset": True}),
    **{cell.name: (cell, {}) for cell in cells.ALL if cell is not cells.GRU}}
# Copies depend on the size of elements only, so one type of each size is tested
_COPIED = tuple(element_types.any_of(DML_TENSOR_DATA_TYPE[name]) for name in ("UINT8", "FLOAT16", "FLOAT32", "INT64"))
# The types that a kind is tested in, if not in all
_TYPES = {"arithmetic": element_types.IN_DIRECTML, "GEMM": element_types.IN_DIRECTML, "cast": element_types.SINGLE,
          "copy": _COPIED, "gather": _COPIED}

Samples = list[tuple[Problem | PlainProblem, Plan]]  # problems that run with the same inputs, and their plans


@dataclass(frozen=True)
class Outcome:
    """Outcome of testing one plan's kernels. kind: one of KINDS, or an operator. seconds: with compiling."""

    kind: str
    element: str
    kernels: tuple[str, ...]
    seconds: float
    wrong: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.element} with {', '.join(self.kernels)}: {self.wrong or 'right'}"


def outcomes(gpu: Gpu) -> Iterator[Outcome]:
    """Test all kinds of operators in all types."""
    for kind in KINDS:
        for element in types_of(kind):
            yield from outcomes_of(gpu, kind, element)


def types_of(kind: str) -> tuple[ElementType, ...]:
    """Return the types that a kind is tested in: those in which its kernels differ."""
    return _CELLS[kind][0].elements if kind in _CELLS else _TYPES.get(kind, element_types.ALL)


def outcomes_of(gpu: Gpu, kind: str, element: ElementType) -> Iterator[Outcome]:
    """Test one kind in one type, with as many plans as it takes to run each kernel."""
    problem = problem_of(kind, element)
    for plan in plans_of(gpu.info, problem):
        yield gpu.lock.work(_outcome, gpu, kind, [(problem, plan)])


def problem_of(kind: str, element: ElementType) -> Problem | PlainProblem:
    if kind in PLAIN_PROBLEMS:
        return PLAIN_PROBLEMS[kind](element)
    cell, flags = _CELLS[kind]
    return forward_problem(cell, element, _SIZES, cell.tensors, flags)


def _outcome(gpu: Gpu, kind: str, runs: Samples) -> Outcome:
    start, (problem, plan) = time.perf_counter(), runs[-1]
    wrong = _wrong(gpu, runs)
    outcome = Outcome(kind, problem.element.name, _kernels(plan), time.perf_counter() - start, wrong)
    _log.info("tested %s, in %.3f s", outcome, outcome.seconds)
    return outcome


def _wrong(gpu: Gpu, runs: Samples) -> str:
    """Run problems with the same inputs. Return how the outputs of the last, with those that only the first has, differ."""
    problem, _ = runs[0]
    memory = random_memory(problem)
    try:
        for one, plan in runs:
            trial = Trial(gpu, one, memory)
            Run(trial, plan).execute()
            memory |= trial.outputs()
        return "; ".join(map(str, differences(problem, memory)))
    except DriverError as error:
        expect_ours(error)
        return str(error)


def plans_of(info: DeviceInfo, problem: Problem | PlainProblem) -> Iterator[Plan]:
    """Yield plans that together have all kernels for which the device has enough bindings."""
    if isinstance(problem, PlainProblem):
        yield plan_plain(problem, info)
        return
    target = Target(problem, info, may_wait=False)
    best = {(tiling.loop.kernel, tiling.loop.schedule, tiling.projection and tiling.projection.kernel): tiling
            for tiling in reversed(tilings(target))}
    made = set[str]()
    for plan in sorted((plan_of(target, tiling) for tiling in best.values()), key=lambda plan: -len(_kernels(plan))):
        if not made.issuperset(_kernels(plan)) and max(storage_buffers(plan).values()) <= info.max_storage_buffers:
            made.update(_kernels(plan))
            yield plan


def pipelines(plan: Plan) -> set[Hashable]:
    """Return the pipelines that a driver compiles for a plan without its fallback."""
    return {(dispatch.kernel, dispatch.subgroup_size, spirv.load(dispatch.kernel).values(dispatch.constants))
            for dispatch in plan.initialize + plan.execute}


def _kernels(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dispatch.kernel for dispatch in plan.initialize + plan.execute))


def samples_of(info: DeviceInfo, problem: Problem | PlainProblem, plan: Plan, options: Options) -> Samples:
    """Make small problems, and plans for them with a plan's pipelines. The first writes a sequence, which the check needs."""
    if isinstance(problem, PlainProblem):
        cut = _cut(problem)
        return [(cut, plan_plain(cut, info))]
    assert plan.tiling
    loop = plan.tiling.loop
    batch = min(problem.batch, _WHOLE_TILES * loop.rows + problem.batch % loop.rows)
    sample = resized(problem, Sizes(min(problem.steps, _MOST_STEPS), batch))
    if loop.chunks > 1:
        options = replace(options, chunk_steps=2)
    return [(one, plan_of(target, tiling)) for one in ([] if sample.has(SEQUENCE) else [with_sequence(sample)]) + [sample]
            if (tiling := fit(target := Target(one, info, options), plan.tiling, True))]


def _cut(problem: PlainProblem) -> PlainProblem:
    """Bound each dimension, so that no tensor is large. A CopyProblem stays, as its copied parts have places in it."""
    for most in (_MOST_ELEMENTS >> halvings | 1 for halvings in range(32)):  # odd: last tiles are not whole
        sizes = {field: tuple(min(size, most) for size in tensor.sizes) for field, tensor in problem.tensors.items() if tensor}
        if max(map(math.prod, sizes.values())) <= _MOST_ELEMENTS:
            break
    return problem if isinstance(problem, CopyProblem) else problem.with_sizes(sizes)


def check(gpu: Gpu, problem: Problem | PlainProblem, plan: Plan, options: Options) -> None:
    """Test a plan's pipelines before their first use. Raises VerificationError if they compute wrongly."""
    made, passed = pipelines(plan), gpu.once_cache.setdefault(check, {})
    if made <= passed.keys():
        return
    choices, key = Choices(gpu.info), {"self-test": sorted(map(repr, made))}
    if choices.get(key) is None:
        expect_right(gpu, [_outcome(gpu, problem.operator, samples_of(gpu.info, problem, plan, options))])
        choices.put(key, {"passed": True})
    passed.update(dict.fromkeys(made))


@OnceForEachGpu
def check_float64(gpu: Gpu) -> None:
    """Raise DriverError if float64 results would not be accurate on this device. The first operator in float64 tries it.

    Each number is a pair of float32 numbers, so a driver that rearranges or misrounds float32 sums spoils the eighth digit.
    """
    if not is_float64_accurate(gpu):
        raise DriverError(f"float64: {gpu.info.name}'s driver does not keep the rounding of float32 sums and products, of "
                          "which this package makes float64. Use float32 on this device")


def is_float64_accurate(gpu: Gpu) -> bool:
    """Return whether sums, products, divisions and exponentials in float64 are right in all digits."""
    x = np.random.default_rng(0).uniform(-2, 2, 64)
    tensor = _tensor(element_types.FLOAT64, *x.shape)
    for desc in (descs.DML_ACTIVATION_LINEAR_OPERATOR_DESC(tensor, tensor, Alpha=1 / 3, Beta=0.1),
                 descs.DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC(tensor, tensor, Alpha=1 / 3, Beta=0.7)):
        problem = plain_problem.elementwise(desc, element_types.FLOAT64)
        trial = Trial(gpu, problem, {"InputTensor": x})
        Run(trial, plan_plain(problem, gpu.info)).execute()
        computed = trial.outputs()["OutputTensor"].view(np.float64)
        if not np.allclose(computed, problem.function(x), rtol=_FLOAT64_TOLERANCE, atol=_FLOAT64_TOLERANCE):
            return False
    return True


def expect_right(gpu: Gpu, found: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes as a list. Raises VerificationError if one is wrong."""
    listed = list(found)
    wrong = [str(outcome) for outcome in listed if outcome.wrong]
    if wrong:
        raise VerificationError(f"{gpu.info.with_driver} computes wrongly: {'; '.join(wrong)}. {COMPUTES_WRONGLY}")
    return listed


def _tensor(element: ElementType, *sizes: int, **described: Any) -> DML_BUFFER_TENSOR_DESC:
    return DML_BUFFER_TENSOR_DESC(DataType=element.data_type, Sizes=sizes, **described)


def _activation(element: ElementType) -> ElementwiseProblem:
    """Return an activation with an exponential and a logarithm."""
    tensor = _tensor(element, _SIZES["T"], _SIZES["H"])
    desc = descs.DML_ACTIVATION_PARAMETRIC_SOFTPLUS_OPERATOR_DESC(tensor, tensor, Alpha=0.5, Beta=2.0)
    return plain_problem.elementwise(desc, element)


def _arithmetic(element: ElementType) -> Any:
    a, b = _tensor(element, 3, 5, 7), _tensor(element, 3, 5, 7, Strides=(7, 0, 1))
    return table.from_desc(descs.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC(
        ATensor=a, BTensor=b, OutputTensor=a, FusedActivation=descs.DML_ACTIVATION_TANH_OPERATOR_DESC()))


def _cast(element: ElementType) -> CastProblem:
    """Return a cast to a narrower type, or from one."""
    source = element_types.FLOAT32 if element.itemsize == 2 else element_types.FLOAT16
    tensors = {"InputTensor": least_tensor(source.data_type, (3, 5, 7), (1, 3, 15), source.itemsize),
               "OutputTensor": least_tensor(element.data_type, (3, 5, 7), (35, 7, 1), element.itemsize)}
    return CastProblem(**common_fields("a cast", element, tensors), function=None, source=source)


def _gemm(element: ElementType) -> Any:
    """Return a product of matrices with several tiles and blocks, none of them full."""
    return table.from_desc(descs.DML_GEMM_OPERATOR_DESC(
        ATensor=_tensor(element, 2, 19, 21), BTensor=_tensor(element, 2, 37, 21), TransB=descs.DML_MATRIX_TRANSFORM.TRANSPOSE,
        CTensor=_tensor(element, 2, 19, 37, Strides=(0, 0, 1)), OutputTensor=_tensor(element, 2, 19, 37), Alpha=0.5, Beta=2.0,
        FusedActivation=descs.DML_ACTIVATION_TANH_OPERATOR_DESC()))


def _copy(element: ElementType) -> Any:
    return table.from_desc(descs.DML_JOIN_OPERATOR_DESC(
        InputTensors=[_tensor(element, 3, 2, 5), _tensor(element, 3, 4, 5)], OutputTensor=_tensor(element, 3, 6, 5), Axis=1))


def _gather(element: ElementType) -> Any:
    """Return a gather of rows of a table."""
    return table.from_desc(descs.DML_GATHER_OPERATOR_DESC(
        InputTensor=_tensor(element, 1, 9, 7), IndicesTensor=_tensor(element_types.any_of(DML_TENSOR_DATA_TYPE.INT32), 1, 3, 5),
        OutputTensor=_tensor(element, 3, 5, 7), Axis=1, IndexDimensions=2))


PLAIN_PROBLEMS: dict[str, Callable[[ElementType], Any]] = {
    ACTIVATION: _activation, "arithmetic": _arithmetic, "GEMM": _gemm, "cast": _cast, "copy": _copy, "gather": _gather}
KINDS = (*_CELLS, *PLAIN_PROBLEMS)
