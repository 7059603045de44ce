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

from ...errors import COMPUTES_WRONGLY, DriverError, VerificationError
from ...operators import activations as activation_table
from ...operators import cells, element_types, plain_problem, table
from ...operators.arguments import tensor_descs
from ...operators.cells import Cell
from ...operators.checks import Tensor, evaluate, least_tensor
from ...operators.copy_problem import INDICES, CopyProblem, GatherProblem
from ...operators.correctness import SEQUENCE, differences, with_sequence
from ...operators.element_types import ElementType
from ...operators.header import descs
from ...operators.header.descs import DML_BUFFER_TENSOR_DESC, DML_TENSOR_DATA_TYPE
from ...operators.plain_problem import (
    MOST_DIMENSIONS,
    CastProblem,
    ElementwiseProblem,
    MovedProblem,
    PlainProblem,
    common_fields,
)
from ...operators.problem import LENGTHS, Problem, from_desc
from ...planning.device_info import DeviceInfo
from ...planning.options import MEETINGS, Options
from ...planning.plain import plan as plan_plain
from ...planning.plan import Plan, fitted, plan_of, tilings
from ...planning.tiling import Target
from ..commands import storage_buffers
from ..vulkan import spirv
from ..vulkan.gpu import Gpu, OnceForEachGpu
from .choices import Choices
from .trial import Run, Trial

_log = logging.getLogger(__name__)

ON, OFF = "on", "off"  # values of VKDML_SELFTEST

# Sizes of the problems: they take several tiles and workgroups, none of them full
_SIZES = {"T": 5, "B": 3, "I": 5, "H": 21, "D": 1}
_MOST_ELEMENTS = 2**17  # of a tensor of an operator without a time loop
_MOST_RANDOM = 2**20 - 3  # random numbers; more repeat them
_FLOAT64_TOLERANCE = 1e-12

ACTIVATION = "activation"
# The classes of plain problems, and the cells with their flags, by kind
_PLAIN: dict[str, type[PlainProblem]] = {ACTIVATION: ElementwiseProblem, "arithmetic": plain_problem.ArithmeticProblem,
                                         "GEMM": plain_problem.GemmProblem, "cast": CastProblem, "copy": CopyProblem,
                                         "gather": GatherProblem}
_CELLS: dict[str, tuple[Cell, dict[str, bool]]] = {
    "GRU": (cells.GRU, {"LinearBeforeReset": False}), "GRU, linear before reset": (cells.GRU, {"LinearBeforeReset": True}),
    "LSTM": (cells.LSTM, {}), "RNN": (cells.RNN, {})}
KINDS = (*_CELLS, *_PLAIN)
# The types that a kind is tested in, if not in all
_TYPES = {"arithmetic": element_types.IN_DIRECTML, "GEMM": element_types.IN_DIRECTML, "cast": element_types.SINGLE}
# Copies depend on the size of elements only, so one type of each size is tested
_COPIED = tuple(element_types.any_of(DML_TENSOR_DATA_TYPE[name]) for name in ("UINT8", "FLOAT16", "FLOAT32", "INT64"))


Samples = list[tuple[Problem | PlainProblem, Plan]]  # problems that run with the same inputs, and their plans


@dataclass(frozen=True)
class Outcome:
    """Outcome of testing one plan's kernels. kind: one of KINDS. seconds: with compiling. wrong: differences, or ""."""

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
    if issubclass(_PLAIN.get(kind, Problem), MovedProblem):
        return _COPIED
    return _TYPES.get(kind, element_types.ALL)


def outcomes_of(gpu: Gpu, kind: str, element: ElementType) -> Iterator[Outcome]:
    """Test one kind in one type, with as many plans as it takes to run each kernel."""
    problem = problem_of(kind, element)
    for plan in plans_of(gpu.info, problem):
        yield _outcome(gpu, kind, [(problem, plan)])


def problem_of(kind: str, element: ElementType) -> Problem | PlainProblem:
    return _recurrent(kind, element) if kind in _CELLS else PLAIN_PROBLEMS[kind](element)


def _outcome(gpu: Gpu, kind: str, runs: Samples) -> Outcome:
    start, (problem, plan) = time.perf_counter(), runs[-1]
    wrong = _wrong(gpu, runs)
    outcome = Outcome(kind, problem.element.name, _kernels(plan), time.perf_counter() - start, wrong)
    _log.info("tested %s, in %.3f s", outcome, outcome.seconds)
    return outcome


def _wrong(gpu: Gpu, runs: Samples) -> str:
    """Run problems with the same inputs. Return how the outputs of the last, with those that only the first has, differ."""
    problem, _ = runs[0]
    memory = _random_memory(problem)
    try:
        with gpu.lock:
            for one, plan in runs:
                trial = Trial(gpu, one, memory)
                Run(trial, plan).execute()
                memory |= trial.outputs()
        return "; ".join(map(str, differences(problem, memory)))
    except DriverError as error:
        return str(error)


def plans_of(info: DeviceInfo, problem: Problem | PlainProblem) -> Iterator[Plan]:
    """Yield plans that together have all kernels for which the device has enough bindings: few plans with few pipelines, as
    nearly all of the time goes into compiling.
    """
    if isinstance(problem, PlainProblem):
        yield plan_plain(problem, info)
        return
    target = Target(problem, info, without=frozenset(MEETINGS))
    best = {(tiling.loop.kernel, tiling.loop.schedule, tiling.projection and tiling.projection.kernel): tiling
            for tiling in reversed(tilings(target))}
    plans = [plan_of(target, tiling) for tiling in best.values()]
    plans = [plan for plan in plans if max(storage_buffers(plan).values()) <= info.max_storage_buffers]
    left, made = {kernel for plan in plans for kernel in _kernels(plan)}, set[Hashable]()
    while left:
        plan = max(plans, key=lambda plan: (len(left.intersection(_kernels(plan))), -len(pipelines(plan) - made),
                                            len(_kernels(plan))))
        left.difference_update(_kernels(plan))
        made |= pipelines(plan)
        yield plan


def pipelines(plan: Plan) -> set[Hashable]:
    """Return the pipelines that a driver compiles for a plan without its fallback."""
    return {(dispatch.kernel, dispatch.subgroup_size, spirv.load(dispatch.kernel).values(dispatch.constants))
            for dispatch in plan.initialize + plan.execute}


def _kernels(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dispatch.kernel for dispatch in plan.initialize + plan.execute))


def samples_of(info: DeviceInfo, problem: Problem | PlainProblem, plan: Plan, options: Options) -> Samples:
    """Make small problems, and plans that run the pipelines of an operator's plan for them. If it writes no sequence, which the
    check needs, a problem that does comes first.
    """
    sample = _sample(problem, plan)
    if isinstance(sample, PlainProblem):
        return [(sample, plan_plain(sample, info))]
    assert plan.tiling
    if plan.tiling.loop.chunks > 1:
        options = replace(options, chunk_steps=2)
    targets = [Target(one, info, options) for one in ([] if sample.has(SEQUENCE) else [with_sequence(sample)]) + [sample]]
    return [(target.problem, plan_of(target, fitted(target, plan.tiling))) for target in targets]


def _sample(problem: Problem | PlainProblem, plan: Plan) -> Problem | PlainProblem:
    """Make a small problem with the same constants: strides stay. It has a whole tile of rows, and the last one."""
    if isinstance(problem, CopyProblem):
        return problem if _elements(problem, math.inf) <= _MOST_ELEMENTS else _copy(problem.element)
    if isinstance(problem, Problem):
        assert plan.tiling
        rows = plan.tiling.loop.rows
        steps, batch = min(problem.steps, _SIZES["T"]), min(problem.batch, rows + (problem.batch % rows or rows))
        letters = {"T": steps, "B": batch, "I": problem.input_size, "H": problem.hidden, "D": problem.directions}
        of_field = {field: [evaluate(formula, letters) for formula in problem.cell.tensors[field]] for field in problem.tensors}
        return replace(problem, steps=steps, batch=batch, tensors=_cut(problem, of_field))
    most = 2 * _MOST_ELEMENTS
    while _elements(problem, most | 1) > _MOST_ELEMENTS:  # odd, so that last tiles are not whole
        most //= 2
    return replace(problem, tensors=_cut(problem, dict.fromkeys(problem.tensors, [most | 1] * MOST_DIMENSIONS)))


def _elements(problem: PlainProblem, most: float) -> float:
    """Count the elements of the largest tensor if each dimension has at most so many."""
    return max(math.prod(min(size, most) for size in tensor.sizes) for tensor in problem.tensors.values() if tensor)


def _cut(problem: Problem | PlainProblem, most: dict[str, list[int]]) -> dict[str, Tensor | None]:
    """Give each tensor at most these sizes, by field."""
    return {field: tensor and least_tensor(tensor.data_type, tuple(map(min, tensor.sizes, most[field])), tensor.strides,
                                           element_types.ITEMSIZES.get(tensor.data_type, problem.element.itemsize))
            for field, tensor in problem.tensors.items()}


@OnceForEachGpu
def _passed(gpu: Gpu) -> set[Hashable]:
    """Return the set of a device's pipelines that passed."""
    return set()


def check(gpu: Gpu, problem: Problem | PlainProblem, plan: Plan, options: Options) -> None:
    """Test a plan's pipelines before their first use. Raises VerificationError if they compute wrongly."""
    made, passed = pipelines(plan), _passed(gpu)
    if made <= passed:
        return
    choices, key = Choices(gpu.info), {"self-test": sorted(map(repr, made))}
    if choices.get(key) is None:
        expect_right(gpu, [_outcome(gpu, kind_of(problem), samples_of(gpu.info, problem, plan, options))])
        choices.put(key, {"passed": True})
    passed |= made


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


def kind_of(problem: Problem | PlainProblem) -> str:
    """Return which of KINDS tests the kernels of a problem."""
    if isinstance(problem, PlainProblem):
        return next(kind for kind, cls in _PLAIN.items() if isinstance(problem, cls))
    return next(kind for kind, (cell, flags) in _CELLS.items()
                if problem.cell is cell and flags.items() <= problem.flags.items())


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


def _recurrent(kind: str, element: ElementType) -> Problem:
    """Return a problem with every tensor that the kind's cell has."""
    cell, flags = _CELLS[kind]
    tensors = tensor_descs(cell, element, _SIZES, cell.tensors)
    activations = [activation_table.BY_ONNX_NAME[name.lower()].desc() for name in cell.default_activations]
    return from_desc(cell.desc(**tensors, **flags, ActivationDescs=tuple(activations),
                               Direction=descs.DML_RECURRENT_NETWORK_DIRECTION.FORWARD), element=element)


def _random_memory(problem: Problem | PlainProblem) -> dict[str, np.ndarray]:
    """Return the bytes of random inputs, by field: numbers of about unit size, and weights that keep sums at that size."""
    rng = np.random.default_rng(0)
    memory = {}
    for field in filter(problem.has, problem.inputs):
        count = problem.tensor(field).size_of_elements
        if isinstance(problem, Problem) and field == LENGTHS:
            lengths = np.resize((problem.steps, 0, (problem.steps + 1) // 2), problem.batch)
            memory[field] = np.resize(lengths, count).astype(np.uint32).view(np.uint8)
        elif isinstance(problem, GatherProblem) and field == INDICES:
            least = -problem.axis_size if problem.index_dtype.kind == "i" else 0
            memory[field] = rng.integers(least, problem.axis_size, count).astype(problem.index_dtype).view(np.uint8)
        elif isinstance(problem, MovedProblem):
            memory[field] = rng.integers(0, 256, problem.tensor(field).size_in_bytes).astype(np.uint8)
        else:
            columns = 1
            if isinstance(problem, Problem) and field in problem.weights:
                columns = problem.input_size if field == "WeightTensor" else problem.hidden
            numbers = np.resize(rng.standard_normal(min(count, _MOST_RANDOM)), count) * columns**-0.5
            memory[field] = _encoded(numbers, problem.input_element)
    return memory


def _encoded(numbers: np.ndarray, element: ElementType) -> np.ndarray:
    """Return numbers as the bytes of a type."""
    if element.name == "bfloat16":  # the upper half of a float32
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).reshape(-1).view(np.uint8)
    return numbers.astype(element.name).reshape(-1).view(np.uint8)
