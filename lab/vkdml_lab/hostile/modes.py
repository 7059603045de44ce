"""Defines the modes of the hostile device. Each draws the device's behaviour (machine.py) and checks what must hold."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from vkdml_lab.hostile import arithmetic, tasks
from vkdml_lab.hostile.arithmetic import Arithmetic
from vkdml_lab.hostile.machine import ALL, Behaviour
from vkdml_lab.hostile.running import Device, Outcome
from vkdml_lab.hostile.tasks import Task
from vkdml_lab.internals import PERSISTENT, MovedProblem, PlainProblem, Plan, Problem, self_test

Edits = Mapping[str, bytes]  # SPIR-V by kernel that replaces the shipped one

# Reports that are no failures, by pattern, with the reason. These loads still return noise, which must not change any bit
ALLOWED = {
    "unwritten: ": "loads from before it is known whether anything is there; what they find is not used",
    "race, .*: state: .*load of state_words in load_": "rows past the batch, and units past H, load the state of others that have it, "
                                                       "and do not use it",
}
_WAVES, _SMALL = (1, 4, 8, 16, 32, 64, 128), 50
_FEW_SPINS = 40
_FAR = 1_000_003  # distance between the seeds that are tried one after the other


@dataclass
class Result:
    """The result of running a task. kernels: names of those that ran. wrong: failures. note: an allowed outcome, or ""."""

    kernels: set[str]
    wrong: list[str] = field(default_factory=list)
    note: str = ""


def run(task: Task, behaviour: Behaviour, edits: Edits) -> tuple[Device, Outcome]:
    device = Device(behaviour, edits)
    return device, device.run(task.problem, task.plan, task.memory)


def same_bits(task: Task, behaviour: Behaviour, edits: Edits) -> Result:
    """Run a task. Outputs must be right, complete and bit for bit a well-behaved device's; no fault may be reported."""
    device, outcome = run(task, behaviour, edits)
    kind = run(task, Behaviour(seed=behaviour.seed + 1), edits)[1]
    wrong = [task.wrong(outcome.outputs)]
    if kind.gave_up or (outcome.gave_up and behaviour.spins > _FEW_SPINS):
        wrong.append("parts gave up, though all of them run")
    if task.bits(outcome.outputs) != task.bits(kind.outputs):
        wrong.append("other bits than on a kind device")
    if outcome.unwritten:
        wrong.append(f"{', '.join(outcome.unwritten)} not written")
    reported = {f"{what}: {where}": f" of {kernel}{f' ({example})' if example else ''}"
            for (what, kernel, where), example in behaviour.reports.items()}
    wrong += [what + rest for what, rest in reported.items() if not re.match("|".join(ALLOWED), what)]
    return Result(device.kernels, [text for text in wrong if text], "gave up" if outcome.gave_up else "")


def _wave(draw: random.Random, task: Task) -> int:
    """Draw the number of lanes of a wave. Only small problems get waves of few lanes, as many waves take long."""
    is_small = isinstance(task.problem, Problem) and task.problem.steps * task.problem.batch * task.problem.hidden <= _SMALL
    return draw.choice((ALL, ALL, ALL, *_WAVES[5 if task.problem.element.pairs else 0 if is_small else 3:]))


def watched(seed: int, task: Task, edits: Edits) -> Result:
    """Run a task in waves of any size. Looks for races, accesses out of bounds, unwritten reads and divergent barriers."""
    return same_bits(task, Behaviour(seed, watches=True, wave=_wave(random.Random(seed), task)), edits)


def weak(seed: int, task: Task, edits: Edits) -> Result:
    """Run a task, whose workgroups wait for each other, on weak memory (weak.py). Sometimes only one of them runs at once."""
    draw = random.Random(seed)
    few = draw.random() < 0.2
    return same_bits(task, Behaviour(seed, weak=True, wave=_wave(draw, task), resident=int(few),
                                     spins=_FEW_SPINS if few else Behaviour.spins), edits)


def drawn(seed: int, scale: float = 1.0) -> Arithmetic:
    """Draw an arithmetic that Vulkan allows, from a seed. scale: multiplies the allowed errors of functions."""
    draw = random.Random(seed)
    return Arithmetic(seed, draw.choice((arithmetic.NEAREST, arithmetic.ZERO, arithmetic.EITHER)),
                   draw.choice((arithmetic.NONE, arithmetic.HIGH, arithmetic.LOW, arithmetic.EXTREME, arithmetic.RANDOM)),
                   draw.random() < 0.5, draw.random() < 0.5, draw.random() < 0.5, draw.choice((0.0, 0.5, 1.0)), scale)


def inexact(seed: int, task: Task, edits: Edits, scale: float = 1.0) -> Result:
    """Run a task in inexact arithmetic. Results must be within Device(verify=...)'s bounds. float64 may be refused."""
    if task.problem.element.pairs and not passes_float64(drawn(seed, scale), edits):
        return Result(set(), note="refused float64")
    device, outcome = run(task, Behaviour(seed, arithmetic=drawn(seed, scale)), edits)
    return Result(device.kernels, [text for text in (task.wrong(outcome.outputs), _lost_nan(seed, task, edits)) if text])


def _lost_nan(seed: int, task: Task, edits: Edits) -> str:
    """Return which outputs lose an input's NaN, as a text, or "". Only devices that assume that NaN never occurs are tried."""
    if isinstance(task.problem, MovedProblem) or not drawn(seed).folds:
        return ""
    of_nan = task.of_nan(seed)
    found, kind = (of_nan.elements(run(of_nan, Behaviour(seed, arithmetic=of), edits)[1].outputs)
                   for of in (drawn(seed), Arithmetic()))
    lost = [field for field in kind if (np.isnan(kind[field]) & ~np.isnan(found[field])).any()]
    return f"NaN becomes a number: {', '.join(lost)}" if lost else ""


def passes_float64(device: Arithmetic, edits: Edits) -> bool:
    """Whether a device with this arithmetic passes the self-test that vkdml runs before its first float64 operator."""
    made: dict[str, np.ndarray] = {}

    def trial(_: Any, problem: PlainProblem, memory: Mapping[str, np.ndarray]) -> Any:
        return SimpleNamespace(problem=problem, memory=memory, outputs=lambda: made)

    def run(one: Any, plan: Plan) -> Any:
        of = Device(Behaviour(arithmetic=device), edits)
        return SimpleNamespace(execute=lambda: made.update(of.run(one.problem, plan, one.memory).outputs))

    gpu: Any = SimpleNamespace(info=tasks.SMALLEST)
    with patch.multiple(self_test, Trial=trial, Run=run):
        return self_test.is_float64_accurate(gpu)


@dataclass(frozen=True)
class Mode:
    """A mode of the hostile device. run: runs a task on a behaviour drawn from a seed. draws: draw a task from a seed."""

    run: Callable[[int, Task, Edits], Result]
    draws: tuple[Callable[[int], Task], ...]


def _waiting(seed: int) -> Task:
    """Draw a task whose workgroups wait for each other (never in float64, whose kernels do not wait)."""
    recurrent = tasks.training if seed % 3 == 0 else tasks.recurrent
    found = (recurrent(number, (PERSISTENT,)) for number in count(seed, _FAR))
    return next(task for task in found if task.plan.timed_out)


MODES = {
    "watched": Mode(watched, (tasks.recurrent, tasks.recurrent, tasks.training, tasks.plain)),
    "inexact": Mode(inexact, (tasks.recurrent, tasks.training, tasks.plain)),
    "weak": Mode(weak, (_waiting,)),
}


def draw(mode: str, seed: int) -> Task:
    return random.Random(f"{mode} {seed}").choice(MODES[mode].draws)(seed)


def try_once(mode: str, seed: int) -> tuple[Task, Result]:
    task = draw(mode, seed)
    return task, MODES[mode].run(seed, task, {})
