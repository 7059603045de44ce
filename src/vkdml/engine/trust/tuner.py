"""The tuner times the plans that the cost model ranks best, once for each size class, and chooses the fastest.

The choice is kept on disk (choices.py). It never changes a result: all candidates give the same bits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import DriverError, InvalidArgumentError, expect_ours
from ...operators.problem import Problem
from ...planning.options import PERSISTENT, Options, forced, forces_bounds_only
from ...planning.plan import Measured, Plan, as_measured, best, best_of_each_schedule, described, plan_of, tilings
from ...planning.size_classes import class_facts, resized
from ...planning.tiling import Target, Tiling
from ..commands import Attempts, storage_buffers
from ..vulkan.gpu import Gpu, OnceForEachGpu
from .choices import Choices
from .trial import GAVE_UP, GridSync, Run, Trial, grid_sync_test

T = TypeVar("T")

_log = logging.getLogger(__name__)

ON, READ, OFF = "on", "read", "off"
MODES = (ON, READ, OFF)  # values of VKDML_TUNING: time plans and keep the choice, only read kept choices, or use the model

_MOST_TIMED = 6
_WITHIN = 3.0  # plans that the model expects to be so many times slower than its best are not timed,
_MOST_EXPECTED = 2.0  # nor those that it expects to take so many seconds
_SAMPLES = 5
_SECONDS = 0.5  # once sampling has taken so long, it ends
_WARMING_SECONDS = 3.0  # once compiling and first executions have taken so long, no further plan is tried


class Tuner:
    """Chooses plans on one device, and knows which were timed and which passed the grid-sync test. Callers are within the
    `work` of the device's lock.

    Once the driver has failed, or workgroups have given up that may succeed later, no choice is kept for later processes.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._choices = Choices(gpu.info)
        self._measured: dict[Hashable, Measured | None] = {}
        self._passed: dict[Hashable, bool] = {}
        self._attempts: dict[Hashable, Attempts] = {}
        self._is_settled = True  # whether nothing has failed that may work in a later process
        self._gave_up = False  # whether a plan gave up while it was timed

    def plan(self, problem: Problem, options: Options, mode: str, workspace_bytes: int | None = None) -> Plan:
        """Return the chosen plan for a problem."""
        return plan_of(*self.choice(problem, options, mode, workspace_bytes))

    def choice(self, problem: Problem, options: Options, mode: str, workspace_bytes: int | None = None
               ) -> tuple[Target, Tiling]:
        """Return the fastest tiling measured, else the model's choice. If it makes workgroups wait, that was tested."""
        measured = self._measured_of(problem, options, mode) if forces_bounds_only(options) else None
        target = as_measured(Target(problem, self._gpu.info, options, workspace_bytes=workspace_bytes), measured)
        tiling = best(target)
        if trusted := tiling if options.schedule == PERSISTENT else self._trusted(tiling, mode):
            return target, trusted
        target = replace(target, may_wait=False)
        return target, best(target)

    def knows(self, problem: Problem, options: Options, mode: str) -> bool:
        """Return whether the problem's size class was measured, or is never measured with these options."""
        return not forces_bounds_only(options) or _class_key(problem, options, mode) in self._measured

    def attempts(self, problem: Problem, options: Options, mode: str) -> Attempts:
        """Return the attempts at a size class's persistent plans. Unless they are forced, one that gives up is not tried again
        in this process; after three, later processes do not try for a day.
        """
        if options.schedule == PERSISTENT:
            return Attempts()
        key = _class_key(problem, options, mode)
        if key not in self._attempts:
            facts = {**class_facts(problem), "options": forced(options)}
            attempts = self._attempts[key] = Attempts(goes_on=False)
            if mode != OFF and self._choices.gives_up(facts):
                _log.info("%s: workgroups gave up waiting before: the fallback runs", problem)
                attempts.timeouts = 1
            elif mode == ON:
                attempts.keep = lambda: self._choices.count_give_up(facts)
        return self._attempts[key]

    def _measured_of(self, problem: Problem, options: Options, mode: str) -> Measured | None:
        key = _class_key(problem, options, mode)
        if key not in self._measured:
            facts = {**class_facts(problem), "options": forced(options)}
            kept = _read(self._choices.get(facts)) if mode != OFF else None
            if kept:
                _log.info("%s: goes by what was timed and kept before", problem)
            if kept is None and mode == ON:
                self._gave_up = False
                kept = self._fastest(resized(problem), options, mode)
                if self._gave_up:
                    self._choices.count_give_up(facts)
                if kept and self._is_settled and (not self._gave_up or self._choices.gives_up(facts)):
                    self._choices.put(facts, {"tiling": kept.tiling, "step seconds": kept.step_seconds})
            self._measured[key] = kept
        return self._measured[key]

    def _fastest(self, problem: Problem, options: Options, mode: str) -> Measured | None:
        """Time the likely plans. Return the fastest; None if none could be timed."""
        target = Target(problem, self._gpu.info, options)
        try:
            pairs = [(tiling, trusted) for tiling in likely(target) if (trusted := self._trusted(tiling, mode))]
            plans = [plan_of(target, trusted) for _, trusted in pairs]
            seconds = self._timed(problem, plans)
        except (InvalidArgumentError, DriverError) as error:  # too large for the device, or for its free memory
            expect_ours(error)
            _log.info("%s: not timed, the model chooses: %s", problem, error)
            return None
        for place, plan in enumerate(plans):
            _log.info("%s: timed %s: %s", problem, plan,
                      f"{seconds[place] * 1e3:.3f} ms" if place in seconds else "does not run")
        if not seconds:
            return None
        fastest = min(seconds, key=lambda place: seconds[place])
        return Measured(described(pairs[fastest][0]), seconds[fastest] / problem.steps)

    def _timed(self, problem: Problem, plans: list[Plan]) -> dict[int, float]:
        """Return the least seconds of an execution of each plan that runs, by its index in `plans`."""
        trial = Trial(self._gpu, problem)
        runs: dict[int, Run] = {}
        end = time.perf_counter() + _WARMING_SECONDS
        fit = {place: plan for place, plan in enumerate(plans)
               if max(storage_buffers(plan).values()) <= self._gpu.info.max_storage_buffers}
        self._unless_failed(lambda: self._gpu.compile(fit.values(), until=end))
        for place, plan in fit.items():
            if time.perf_counter() < end and (run := self._unless_failed(lambda: _warm(trial, plan))):  # noqa: B023
                runs[place] = run
        seconds: dict[int, float] = {}
        end = time.perf_counter() + _SECONDS
        for sample in range(_SAMPLES):
            for place, run in list(runs.items()):
                if sample and time.perf_counter() > end:
                    return seconds
                elapsed = self._unless_failed(run.execute)
                self._gave_up |= run.timeouts > 0
                if elapsed is None or run.timeouts:
                    del runs[place]
                    seconds.pop(place, None)
                else:
                    seconds[place] = min(elapsed, seconds.get(place, elapsed))
        return seconds

    def _unless_failed(self, call: Callable[[], T]) -> T | None:
        """Return the result of a call; None if the driver fails."""
        try:
            return call()
        except DriverError as error:
            expect_ours(error)
            _log.info("left out of what is timed: %s", error)
            self._is_settled = False
            return None

    def _trusted(self, tiling: Tiling, mode: str) -> Tiling | None:
        """Return the tiling if its workgroups do not wait for each other, or passed the grid-sync test. If they failed,
        return it with coherent polls, which a compiler may treat otherwise, if that passed; else None.
        """
        coherent = replace(tiling, loop=replace(tiling.loop, coherent_polls=True))
        return next((one for one in (tiling, coherent) if one.loop.schedule != PERSISTENT or self._passes(one, mode)), None)

    def _passes(self, tiling: Tiling, mode: str) -> bool:
        """Return whether a tiling's workgroups passed the grid-sync test, which runs once."""
        sync = GridSync.of(tiling)
        key = tuple(sync.facts.values())
        if key not in self._passed:
            try:
                self._passed[key] = self._tested(sync, mode)
            except InvalidArgumentError as error:  # no memory is left for it now
                expect_ours(error)
                return False
        return self._passed[key]

    def _tested(self, sync: GridSync, mode: str) -> bool:
        kept = self._choices.get(sync.facts) if mode != OFF else None
        if kept is not None and isinstance(kept.get("passed"), bool):
            return bool(kept["passed"])
        if mode != OFF and self._choices.gives_up(sync.facts):
            return False
        verdict = self._unless_failed(lambda: grid_sync_test(self._gpu, sync))
        if verdict is None:
            return False
        _log.info("the grid-sync test of %s by %s loads has %s: %s", sync.cell.name,
                  "coherent" if sync.coherent_polls else "volatile", "passed" if verdict.passed else "failed", verdict.found)
        if mode == ON and verdict is GAVE_UP:
            self._choices.count_give_up(sync.facts)
            self._is_settled &= self._choices.gives_up(sync.facts)
        elif mode == ON:
            self._choices.put(sync.facts, {"passed": verdict.passed, "found": verdict.found})
        return verdict.passed


tuner = OnceForEachGpu(Tuner)  # the process's tuner of a device


def _class_key(problem: Problem, options: Options, mode: str) -> Hashable:
    return (mode, options, *class_facts(problem).values())


def likely(target: Target) -> list[Tiling]:
    """Return the tilings to time: the model's best for each schedule, then its next ones, none much slower than the first. All
    give the same bits.
    """
    found = tilings(target)
    first = found[0]
    most = min(_WITHIN * first.seconds(target), _MOST_EXPECTED)
    alike = [tiling for tiling in found if _arithmetic(tiling) == _arithmetic(first) and tiling.seconds(target) <= most]
    ways = best_of_each_schedule(alike)
    return [*ways, *(tiling for tiling in alike if tiling not in ways)][:_MOST_TIMED]


def _arithmetic(tiling: Tiling) -> tuple[str, str | None]:
    """Return the facts that determine the order of a tiling's sums."""
    return tiling.loop.kernel, tiling.projection.kernel if tiling.projection else None


def _warm(trial: Trial, plan: Plan) -> Run:
    """Return a run that was executed once, so that it is compiled."""
    run = Run(trial, plan)
    run.execute()
    return run


def _read(value: dict[str, Any] | None) -> Measured | None:
    """Return the measurement that a kept file holds; None if it holds none that makes sense."""
    tiling, seconds = (value or {}).get("tiling"), (value or {}).get("step seconds")
    if not isinstance(tiling, dict) or not isinstance(seconds, float) or not 0 < seconds < math.inf:
        return None
    return Measured(tiling, seconds)
