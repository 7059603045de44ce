"""Operators planned for a device, which record their commands with buffers that the caller owns."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..errors import COMPUTES_WRONGLY, InvalidArgumentError, VerificationError
from ..operators.correctness import differences, with_sequence
from ..operators.plain_problem import PlainProblem
from ..operators.problem import Problem
from ..planning.options import WORKSPACES, Options
from ..planning.plain import plan as plan_plain
from ..planning.plan import Plan
from ..planning.plan import plan as plan_recurrent
from ..planning.profiles import profile
from .commands import Attempts, Commands, storage_buffers
from .trust import self_test, tuner
from .vulkan import system
from .vulkan.gpu import Gpu
from .vulkan.memory import Bound
from .weights import Weights

_log = logging.getLogger(__name__)


class _Chosen(NamedTuple):
    """The plan in use. attempts: counts executions that gave up. workspace_bytes: the bound on the plan's chunks."""

    plan: Plan
    attempts: Attempts
    workspace_bytes: int | None


class Compiled:
    """An operator planned for a device. It owns no memory: its callers pass all buffers. A device that is tuned chooses the
    plan when it is first needed. That, as making one, is done within the `work` of the device's lock.

    problem: the checked descriptor. computed: the problem with the outputs that a check needs. is_verified: whether executions
    may be checked.

    Raises InvalidArgumentError for tensors or options that the device does not support; DriverError for float64 where the
    driver's arithmetic is not accurate enough; VerificationError if the self-test finds that its kernels compute wrongly.
    """

    problem: Problem | PlainProblem

    def __init__(self, gpu: Gpu, problem: Problem | PlainProblem, options: Options, is_verified: bool = False) -> None:
        self.problem, self.gpu, self._options = problem, gpu, options
        if problem.element.pairs:
            self_test.check_float64(gpu)
        self.is_verified = is_verified
        self.computed = with_sequence(problem) if is_verified and isinstance(problem, Problem) else problem
        self._tuning = system.setting("compile_operator", "VKDML_TUNING", tuner.MODES) or tuner.ON
        tests = system.setting("compile_operator", "VKDML_SELFTEST", (self_test.ON, self_test.OFF))
        self._is_tested = tests == self_test.ON or (tests is None and not profile(gpu.info).is_known)
        self._tuner = tuner.tuner(gpu) if isinstance(problem, Problem) and profile(gpu.info).tuned else None
        self._chosen: _Chosen | None = None
        if self._tuner and isinstance(self.computed, Problem) and not self._tuner.knows(self.computed, options, self._tuning):
            self._planned(None, None)  # refused now, and measured later
        else:
            self.choose()

    @property
    def plan(self) -> Plan:
        """The plan that executions run."""
        return (self._chosen or self.choose()).plan

    def choose(self, workspace_bytes: int | None = None) -> _Chosen:
        """Choose the plan, unless it was chosen before. workspace_bytes: a smaller bound on its chunks, if memory is short."""
        chosen = self._chosen
        if chosen is None or chosen.workspace_bytes != workspace_bytes:
            plan = self._planned(self._tuner, workspace_bytes)
            attempts = chosen.attempts if chosen else Attempts()
            if chosen is None and self._tuner and isinstance(self.computed, Problem):
                attempts = self._tuner.attempts(self.computed, self._options, self._tuning)
            chosen = self._chosen = _Chosen(plan, attempts, workspace_bytes)
            if _log.isEnabledFor(logging.DEBUG) and isinstance(self.problem, Problem):
                _log.debug("%s: %s", self.problem, plan)
        return chosen

    def _planned(self, timed_by: tuner.Tuner | None, workspace_bytes: int | None) -> Plan:
        """Make a plan, with buffers for outputs that only a check needs. timed_by: None for the cost model's choice."""
        info, options = self.gpu.info, self._options
        if isinstance(self.computed, PlainProblem):
            plan = plan_plain(self.computed, info)
        else:
            plan = (timed_by.plan(self.computed, options, self._tuning, workspace_bytes) if timed_by else
                    plan_recurrent(self.computed, info, options, workspace_bytes))
        for name, count in storage_buffers(plan).items():
            if count > info.max_storage_buffers:
                raise InvalidArgumentError(self.problem.operator, name, f"{count} storage buffers",
                                           f"at most {info.max_storage_buffers} on {info.name}")
        if self._is_tested:
            self_test.check(self.gpu, self.computed, plan, options)
        unbound = [field for field in self.computed.outputs if self.computed.has(field) and not self.problem.has(field)]
        return replace(plan, buffers=plan.buffers | {field: self.computed.tensor(field).size_in_bytes for field in unbound})

    def is_read(self, name: str) -> bool:
        """Return whether the host reads a scratch buffer: an output that is checked, or the word that says that the plan gave
        up. Such a buffer is no part of another one.
        """
        return name in self.computed.outputs or name == self.plan.timed_out

    @property
    def temporary(self) -> dict[str, int]:
        """Bytes of the scratch buffers that only kernels use, by their names in the plan."""
        return {name: size for name, size in self.plan.scratch.items() if not self.is_read(name)}

    @property
    def read(self) -> dict[str, int]:
        """Bytes of the scratch buffers that the host reads, by their names in the plan."""
        return {name: size for name, size in self.plan.scratch.items() if self.is_read(name)}

    @property
    def weight_fields(self) -> list[str]:
        """The fields of the inputs that are packed as weights."""
        return [field for field in self.problem.weights if self.problem.has(field)]

    @property
    def packing_key(self) -> Hashable:
        """A key that is equal for operators that pack weights alike."""
        return tuple((dispatch.kernel, tuple(dispatch.constants.items()), tuple(dispatch.push.items()))
                     for dispatch in self.plan.initialize)

    def record_packing(self, commands: Commands, memory: Mapping[str, Bound], weights: Weights) -> None:
        """Record the dispatches that pack weights. memory: the buffers that hold them, by field."""
        commands.record(self.plan.initialize, {**memory, **weights.buffers})

    def record(self, commands: Commands, memory: Mapping[str, Bound], weights: Weights | None, is_checked: bool = False
               ) -> None:
        """Record an execution. memory: the tensors' buffers, by field, and scratch buffers, by their names in the plan.
        weights: packed when they have changed if `memory` has their fields, else packed already; None if the operator has none.

        is_checked: raise VerificationError for wrong results. The inputs are copied first and the check follows at once, as
        this execution or later steps may overwrite them.
        """
        before: dict[str, np.ndarray] = {}
        inputs = {field: memory[field] for field in self.computed.inputs if field in memory}
        if is_checked:
            commands.call(lambda: before.update(self.contents(inputs)))
        field, problem = self.problem.checked_input, self.problem
        if field is not None and not commands.writes(memory[field]):  # kernels bound values that an earlier dispatch writes
            size, given = problem.tensor(field).size_in_bytes, memory[field]
            commands.before_execute(lambda: problem.check_values(given.buffer._take((size,), np.uint8, given.offset)))
        if weights is not None:
            sources = [memory[field] for field in self.weight_fields if field in memory]
            if sources:
                commands.pack(weights, sources, self.plan.initialize, {**memory, **weights.buffers})
            memory = {**memory, **weights.buffers}
        chosen = self._chosen or self.choose()
        commands.execution(chosen.plan, memory, chosen.attempts)
        if is_checked:
            outputs = {field: memory[field] for field in self.computed.outputs if self.computed.has(field)}
            packed = weights.contents if weights else {}
            commands.call(lambda: _verify(self.gpu, self.computed, self.plan, {**packed, **before, **self.contents(outputs)}))

    def contents(self, memory: Mapping[str, Bound]) -> dict[str, np.ndarray]:
        """Download the bytes of tensors, by field."""
        return {field: part.buffer._fetch((self.computed.tensor(field).size_in_bytes,), np.uint8, part.offset)
                for field, part in memory.items()}


def choose_within(gpu: Gpu, operators: Iterable[Compiled], sizes: Callable[[], Mapping[str, int]]) -> None:
    """Choose the plans of operators that run together, with the largest chunks for which the device has room, else the
    smallest. Chunks change no result. sizes: returns the bytes that the present plans need, by name.
    """
    for workspace_bytes in (None, *WORKSPACES):
        for operator in operators:
            operator.choose(workspace_bytes)
        if gpu.memory.has_room(sizes()):
            return


class Share:
    """Decides which calls are checked against the float64 reference: an even share of them, with the first. share: from 0 to 1;
    None takes VKDML_VERIFY, or else 0.
    """

    def __init__(self, share: float | None) -> None:
        field, given = ("verify", share) if share is not None else ("VKDML_VERIFY", os.environ.get("VKDML_VERIFY") or 0)
        try:
            self.share = float(given)
        except (TypeError, ValueError):
            self.share = math.nan
        if not 0 <= self.share <= 1:
            raise InvalidArgumentError("Device", field, repr(given), "a share of the calls, from 0 to 1")
        self._calls = 0

    def has_next(self) -> bool:
        """Count a call. Return whether it is to be checked."""
        before, self._calls = self._calls - 1, self._calls + 1
        return math.floor((before + 1) * self.share) > math.floor(before * self.share)


def _verify(gpu: Gpu, problem: Problem | PlainProblem, plan: Plan, memory: Mapping[str, np.ndarray]) -> None:
    """Raise VerificationError if results are wrong. memory: the bytes of all tensors, by field."""
    wrong = differences(problem, memory)
    if wrong:
        sizes = f" with T, B, I, H = {problem.steps}, {problem.batch}, {problem.input_size}, {problem.hidden}" if isinstance(
            problem, Problem) else ""
        kernels = ", ".join(dict.fromkeys(dispatch.kernel for dispatch in plan.execute))
        raise VerificationError(f"{problem.operator} in {problem.element.name}{sizes}: {gpu.info.with_driver} computed wrongly "
                                f"with {kernels}: {'; '.join(map(str, wrong))}. {COMPUTES_WRONGLY}")
