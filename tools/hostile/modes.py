"""The modes: what a device may do, and what must hold on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

import numpy as np

from tools.hostile import arithmetic, tasks
from tools.hostile.arithmetic import Inexact
from tools.hostile.machine import ALL, BACKWARD, FORWARD, SHUFFLED, Behaviour
from tools.hostile.running import Device, Outcome
from tools.hostile.tasks import Task
from vkdml.laboratory import BARRIER, FLOW, PERSISTENT, ElementwiseProblem, float64_is_accurate_with

Edits = Mapping[str, bytes]  # SPIR-V instead of what is shipped, by kernel

# Reports that are no failure: their beginnings, and why. What is read so is noise all the same, and no bit may change by it
ALLOWED = {
    "unwritten: ": "loads from before it is known whether anything is there; what they find is not used",
    "race, write after read: state: store to state_words in store_state": "loads of the last row's c by rows past the batch",
}
_WAVES = (1, 4, 8, 16, 32, 64, 128)
_FEW_SPINS = 40
_FAR = 1_000_003  # from a seed to the next that takes its place


@dataclass
class Result:
    """A run's. kernels: those that ran. wrong: what must not be. note: how it ended else."""

    kernels: set[str]
    wrong: list[str] = field(default_factory=list)
    note: str = ""


def run(task: Task, behaviour: Behaviour, edits: Edits) -> tuple[Device, Outcome]:
    device = Device(behaviour, edits)
    return device, device.run(task.problem, task.plan, task.memory)


def same_bits(task: Task, behaviour: Behaviour, edits: Edits) -> Result:
    """A task on a device: right, with the bits that a kind device gives, all written, and without reports."""
    device, outcome = run(task, behaviour, edits)
    kind = run(task, Behaviour(seed=behaviour.seed + 1, order=SHUFFLED), edits)[1]
    wrong = [task.wrong(outcome.outputs)]
    if kind.gave_up or (outcome.gave_up and behaviour.spins > _FEW_SPINS):
        wrong.append("parts gave up, though all of them run")
    if task.bits(outcome.outputs) != task.bits(kind.outputs):
        wrong.append("other bits than on a kind device")
    if outcome.unwritten:
        wrong.append(f"{', '.join(outcome.unwritten)} not written")
    told = {f"{what}: {where}": f" of {kernel}{f' ({example})' if example else ''}"
            for (what, kernel, where), example in behaviour.reports.items()}
    wrong += [what + rest for what, rest in told.items() if not what.startswith(tuple(ALLOWED))]
    return Result(device.kernels, [text for text in wrong if text], "gave up" if outcome.gave_up else "")


def watched(seed: int, task: Task, edits: Edits) -> Result:
    """Races, words outside, unwritten words, barriers in divergent flow; waves of any size, in any order."""
    draw = random.Random(seed)
    wave = draw.choice((ALL, ALL, ALL, *_WAVES[-4:]))
    order = SHUFFLED if task.plan.timed_out else draw.choice((FORWARD, BACKWARD, SHUFFLED))
    return same_bits(task, Behaviour(seed, watches=True, wave=wave, order=order), edits)


def weak(seed: int, task: Task, edits: Edits) -> Result:
    """Weak memory between workgroups that wait for each other, some of their waves slow; or too few of them at once."""
    draw = random.Random(seed)
    few = draw.random() < 0.2
    return same_bits(task, Behaviour(seed, weak=True, wave=draw.choice((ALL, *_WAVES[2:])), order=SHUFFLED, resident=int(few),
                                     spins=_FEW_SPINS if few else Behaviour.spins), edits)


def drawn(seed: int, scale: float = 1.0) -> Inexact:
    """Some arithmetic that Vulkan allows; with a scale, functions that are so much more inexact."""
    draw = random.Random(seed)
    return Inexact(seed, draw.choice((arithmetic.NEAREST, arithmetic.ZERO, arithmetic.EITHER)),
                   draw.choice((arithmetic.NONE, arithmetic.HIGH, arithmetic.LOW, arithmetic.EXTREME, arithmetic.RANDOM)),
                   draw.random() < 0.5, draw.random() < 0.5, draw.random() < 0.5, draw.choice((0.0, 0.5, 1.0)), scale)


def inexact(seed: int, task: Task, edits: Edits, scale: float = 1.0) -> Result:
    """The worst arithmetic: results within the bound that checked calls have; float64 where the device passes its test."""
    if task.problem.element.pairs and not passes_float64(drawn(seed, scale), edits):
        return Result(set(), note="refused float64")
    device, outcome = run(task, Behaviour(seed, arithmetic=drawn(seed, scale), order=SHUFFLED), edits)
    wrong = [task.wrong(outcome.outputs)]
    if not task.problem.element.pairs and isinstance(task.problem, ElementwiseProblem):
        wrong.append(_lost_nan(seed, task, edits, drawn(seed)))
    return Result(device.kernels, [text for text in wrong if text])


def _lost_nan(seed: int, task: Task, edits: Edits, inexact: Inexact) -> str:
    """What is wrong where an input's first element is NaN."""
    field = task.problem.inputs[0]
    of_nan = task.with_bytes(field, 0, tasks.NAN[task.problem.element.name])
    device = run(of_nan, Behaviour(seed, arithmetic=inexact), edits)[1]
    kind = run(of_nan, Behaviour(seed), edits)[1]
    lost = [name for name in kind.outputs
            if np.isnan(of_nan.first(kind.outputs, name)) and not np.isnan(of_nan.first(device.outputs, name))]
    return f"NaN becomes a number in {', '.join(lost)}" if lost else ""


def passes_float64(inexact: Inexact, edits: Edits) -> bool:
    """Whether a device passes the test before the first operator in float64."""
    info = SimpleNamespace(info=tasks.SMALLEST)
    return float64_is_accurate_with(info, lambda problem, plan, memory: Device(Behaviour(arithmetic=inexact), edits).run(
        problem, plan, memory).outputs)


@dataclass(frozen=True)
class Mode:
    """run: a task's result, by a seed. draws: what it draws tasks from, by a seed."""

    run: Callable[[int, Task, Edits], Result]
    draws: tuple[Callable[[int], Task], ...]


def _waiting(seed: int) -> Task:
    """A task with workgroups that wait for each other, which float64 has not."""
    found = (tasks.recurrent(number, ((PERSISTENT, BARRIER), (PERSISTENT, FLOW))) for number in count(seed, _FAR))
    return next(task for task in found if task.plan.timed_out)


MODES = {
    "watched": Mode(watched, (tasks.recurrent, tasks.recurrent, tasks.recurrent, tasks.plain)),
    "inexact": Mode(inexact, (tasks.recurrent, tasks.plain)),
    "weak": Mode(weak, (_waiting,)),
}


def try_once(mode: str, seed: int) -> tuple[Task, Result]:
    task = (draws := MODES[mode].draws)[seed % len(draws)](seed)
    return task, MODES[mode].run(seed, task, {})
