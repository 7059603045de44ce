"""Draws tasks for the hostile device: random problems, each with a plan for a made-up GPU and a check of its results."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from vkdml import InvalidArgumentError, Options
from vkdml_lab.internals import (
    ACTIVATIONS,
    ALL_CELLS,
    FLOAT32,
    PLAIN_PROBLEMS,
    SCHEDULES,
    PlainProblem,
    Plan,
    Problem,
    Schedule,
    Target,
    Tiling,
    differences,
    families,
    forward_problem,
    plan_of,
    plan_plain,
    random_memory,
    tilings,
    types_of,
    with_sequence,
)
from vkdml_lab.suite.devices import GPUS, SMALLEST
from vkdml_lab.suite.support import DTYPES, Case, random_case
from vkdml_lab.suite.test_gpu_kernels import CASES

DEVICES = {**GPUS, "the smallest": SMALLEST}


@dataclass(frozen=True)
class Task:
    """A problem (an operator), a plan for it, and its inputs. memory: the inputs' bytes by field."""

    name: str
    problem: Problem | PlainProblem
    plan: Plan
    memory: Mapping[str, np.ndarray]

    def wrong(self, outputs: Mapping[str, np.ndarray]) -> str:
        """Return a text that says which outputs are off by more than rounding, or "". outputs: bytes by field."""
        results = {field: outputs[field][:self.problem.tensor(field).size_in_bytes] for field in outputs}
        return "; ".join(map(str, differences(self.problem, {**self.memory, **results})))

    def of_nan(self, seed: int) -> Task:
        """Return a copy of the task with NaN in all elements of an input, which the seed chooses."""
        type_of = {field: self.problem.tensor(field).data_type for field in self.memory}  # of lengths: uint32
        field = random.Random(seed).choice([field for field in type_of if type_of[field] == type_of[self.problem.inputs[0]]])
        dtype = DTYPES[self.problem.input_element.name]
        nan = np.full(self.memory[field].size // dtype.itemsize, np.nan, dtype)
        return replace(self, memory={**self.memory, field: nan.view(np.uint8)})

    def elements(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs' elements by field, without the gaps that strides leave. outputs: bytes by field."""
        dtype = DTYPES.get(self.problem.element.name, np.dtype(f"V{self.problem.element.itemsize}"))
        tensors = {field: self.problem.tensor(field) for field in outputs}
        return {field: tensor.view(outputs[field][:tensor.size_of_elements * dtype.itemsize].view(dtype))
                for field, tensor in tensors.items()}

    def bits(self, outputs: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        return {field: elements.tobytes() for field, elements in self.elements(outputs).items()}


def recurrent(seed: int, schedules: tuple[Schedule, ...] = SCHEDULES) -> Task:
    """Draw a recurrent problem, with options, a device and a tiling (one way to run it). schedules: those to prefer."""
    draw = random.Random(f"task {seed}")
    # A quarter of the problems has more units, so that several invocations share a column
    case = draw.choice(list(CASES.values())) if draw.random() < 0.25 else random_case(seed)
    problem = with_sequence(case.problem)  # with all steps as output, so that each step can be checked alone
    return _planned(problem, _memory(case), draw, schedules)


def training(seed: int, schedules: tuple[Schedule, ...] = SCHEDULES) -> Task:
    """Draw a problem of training (forward or backward), options, a device and a tiling. schedules: those to prefer."""
    draw = random.Random(f"training {seed}")
    cell = draw.choice([cell for cell in ALL_CELLS if cell.desc is None])
    sizes = {"T": draw.randint(1, 8), "B": draw.randint(1, 9), "I": draw.randint(1, 20), "H": draw.choice((1, 3, 8, 17, 40, 100)),
             "D": draw.choice((1, 2))}
    reverse = draw.choice([(False, True), (True, False)]) if sizes["D"] == 2 else (draw.random() < 0.5,)
    fields = [field for field in cell.tensors if field in (*cell.required, *cell.outputs) or draw.random() < 0.7]
    problem = forward_problem(cell, FLOAT32, sizes, fields, {}, reverse)
    return _planned(problem, random_memory(problem), draw, schedules)


def _planned(problem: Problem, memory: Mapping[str, np.ndarray], draw: random.Random, schedules: tuple[Schedule, ...]) -> Task:
    """Draw options, a device and a tiling for this problem. memory: its inputs' bytes. schedules: those to prefer."""
    name = draw.choice(list(DEVICES))
    info = replace(DEVICES[name], storage_16bit=draw.random() < 0.5)
    for schedule in (draw.choice(schedules), *draw.sample(SCHEDULES, len(SCHEDULES))):
        forced = Options(schedule=schedule, chunk_steps=draw.choice((None, 2)))
        try:
            target = Target(problem, info, forced)
            found = tilings(target)
            shared = [tiling for tiling in found if tiling.loop.parts > 1]
            tiling = draw.choice(shared or found)
            # Sometimes shrink the device's shared memory, so that sums must overwrite the tile that was multiplied
            if isinstance(tiling.loop, families.gpu_loop.GpuLoop) and draw.random() < 0.3:
                less = tiling.loop.shared_bytes - 1 + families.gpu_loop._UNUSED_SHARED_BYTES
                smaller = Target(problem, replace(info, max_shared_memory=less), forced)
                if in_place := [other for other in _tilings(smaller) if getattr(other.loop, "in_place", False)]:
                    target, tiling = smaller, draw.choice(in_place)
            plan = plan_of(target, tiling)
        except InvalidArgumentError:  # this problem has no such schedule
            continue
        described = f"{problem.cell.name} in {problem.element.name}, {schedule} on {name}"
        return Task(described, problem, plan, memory)
    raise AssertionError(f"no plan for {problem}")


def _tilings(target: Target) -> list[Tiling]:
    try:
        return tilings(target)
    except InvalidArgumentError:
        return []


def _memory(case: Case) -> dict[str, np.ndarray]:
    return {field: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for field, array in case.arrays.items()}


def plain(seed: int) -> Task:
    """Draw a problem without a time loop, of a kind that the self-test has. Draws its activation, too, if it has one."""
    draw = random.Random(seed)
    kind = draw.choice(list(PLAIN_PROBLEMS))
    element = draw.choice(types_of(kind))
    info = replace(draw.choice(list(DEVICES.values())), storage_16bit=draw.random() < 0.5)
    problem = PLAIN_PROBLEMS[kind](element)
    if function := getattr(problem, "function", None):
        row = draw.choice([row for row in ACTIVATIONS.values() if row.has_pairs or not element.pairs])
        params = tuple(0.5 if name in row.divisors else draw.choice((0.0, 0.5)) for name in row.fields)
        problem = replace(problem, function=replace(function, activation=row, params=params))
    return Task(f"{kind} in {element.name}", problem, plan_plain(problem, info), random_memory(problem))
