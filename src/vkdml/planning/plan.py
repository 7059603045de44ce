"""Problem + device -> plan. No Vulkan here, and on one machine the same problem always gives the same plan, but for what was
measured of it (`Measured`).

Three schedules, one gate math (shaders/cells/):
- sequence: a workgroup owns a direction and a tile of batch rows from the first time step to the last; a dispatch runs a
  chunk of steps.
- stepped: the units are spread over several workgroups, the parts, and a dispatch runs one phase of one step.
- persistent: they are spread so too, and a dispatch runs a chunk of steps; the parts wait for each other at a barrier of their
  own or, in flow, for each word of h. Vulkan promises no progress of one workgroup while another waits, so waiting is bounded,
  and a plan has a fallback. Only the kernels for GPUs know it, and unasked only GPUs have it, where all parts fit side by side.

Each with the input's part of all gates first, as one matrix product for many time steps (the projection). The kernels of CPU
drivers and of float64 may multiply it in the loop instead (fused): one dispatch less, for few steps or few inputs.

Tilings are found and ranked for the representative of the problem's size class (size_classes.py), once; each is then fitted to
the problem's own T and B. So kernels are chosen for a class, and a new length or batch costs no more than that arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from ..errors import InvalidArgumentError, shown
from ..operators.checks import CheckedOperator
from ..operators.element_types import ElementType
from ..operators.problem import Problem
from .device_info import DeviceInfo
from .dispatches import Dispatch
from .families import FAMILIES
from .loop_dispatches import pack, time_loop
from .options import PERSISTENT, STEPPED, WORKSPACE_BYTES, Options, forced, has_all, left_values
from .size_classes import with_sizes_of_class
from .tiling import GATES, MEETING, Target, Tiling

_MOST_STEPS_RECORDED = 2000  # stepped, a phase of a step is a dispatch, which takes some of the host's memory
_CLASSES_KEPT = 1024


@dataclass(frozen=True)
class Plan:
    """internal: bytes of each buffer that is not the user's. initialize packs the weights; execute runs the operator.

    Where execute may give up, timed_out is the buffer and its word that say so, and fallback runs the operator then. tiling:
    the tiling that it was made of. seconds: of an execution, by the model. Both are None for an operator without a time loop.
    """

    initialize: tuple[Dispatch, ...]
    execute: tuple[Dispatch, ...]
    internal: dict[str, int]
    fallback: tuple[Dispatch, ...] = ()
    timed_out: tuple[str, int] | None = None
    tiling: Tiling | None = None
    seconds: float | None = None

    @property
    def submissions(self) -> int:
        """Number of submissions of an execution whose weights are packed. A fallback has its own."""
        return 1 + sum(dispatch.starts_submission for dispatch in self.execute[1:])

    @property
    def packed(self) -> dict[str, int]:
        """Bytes of the packed weights, by name."""
        written = {name for dispatch in self.initialize for name in dispatch.writes}
        return {name: size for name, size in self.internal.items() if name in written}

    @property
    def scratch(self) -> dict[str, int]:
        """Bytes of what an execution needs beside them, by name."""
        return {name: size for name, size in self.internal.items() if name not in self.packed}


def plan(problem: Problem, info: DeviceInfo, options: Options = Options(), workspace_bytes: int | None = None
         ) -> Plan:
    """Choose kernels, tiles and chunks. workspace_bytes: of chunks, where memory is short; it changes no other choice.

    Raises InvalidArgumentError for an option that cannot be had, and for what the device cannot hold.
    """
    target = Target(problem, info, options, workspace_bytes=workspace_bytes)
    return plan_of(target, best(target))


def plan_of(target: Target, tiling: Tiling) -> Plan:
    """The plan that one of its tilings makes. Raises InvalidArgumentError for what the device cannot hold."""
    built = Plan(pack(target, tiling), time_loop(target, tiling), tiling.internal, tiling=tiling,
                 seconds=tiling.run_seconds(target))
    if tiling.loop.schedule == PERSISTENT:
        built = replace(built, fallback=time_loop(target, fallbacks(target, tiling)[0]), timed_out=(MEETING, 0))
    check_limits(target.problem, target.info, built)
    return built


def check_limits(problem: CheckedOperator, info: DeviceInfo, plan: Plan) -> None:
    """Refuse what the device cannot hold."""
    sizes = plan.internal | {field: tensor.size_in_bytes for field, tensor in problem.tensors.items() if tensor}
    limit = info.max_storage_buffer_range
    for name, size in sizes.items():
        if size > limit:
            raise InvalidArgumentError(problem.operator, name, f"{size} bytes",
                                       f"at most {limit}, the largest storage buffer of {info.name}")
    for dispatch in plan.initialize + plan.execute + plan.fallback:
        if max(dispatch.groups) > info.max_workgroup_count:
            raise InvalidArgumentError(problem.operator, "batch size", f"{max(dispatch.groups)} workgroups",
                                       f"at most {info.max_workgroup_count} on {info.name}")


# The choice among tilings

def best(target: Target) -> Tiling:
    """The fastest in the problem's size class, as measured or else by the model, of those that can run the problem itself.

    Raises InvalidArgumentError if there is none.
    """
    return next(_found(target))


def tilings(target: Target) -> list[Tiling]:
    """All of them, the fastest of the size class first. Raises InvalidArgumentError if there is none."""
    return list(_found(target))


def fallbacks(target: Target, tiling: Tiling) -> list[Tiling]:
    """What can run instead of a persistent tiling with the same packed weights and projection, the fastest first."""
    others = [other for other in tiling.fallbacks(target) if _has_a_step(target, other)
              and (other.loop.schedule != STEPPED or _can_be_stepped(target))]
    return sorted((_in_chunks(target, other) for other in others), key=lambda other: other.seconds(target))


def best_of_each_way(tilings: Iterable[Tiling]) -> list[Tiling]:
    """The first of each way to order the steps: of each schedule, and of each meeting."""
    ways: dict[tuple[str, str | None], Tiling] = {}
    for tiling in tilings:
        ways.setdefault((tiling.loop.schedule, tiling.loop.meeting), tiling)
    return list(ways.values())


@lru_cache(_CLASSES_KEPT)
def ranked(target: Target) -> tuple[Tiling, ...]:
    """The tilings of the size class that the options allow, for its representative, the fastest by the model first."""
    target = Target(with_sizes_of_class(target.problem), target.info, target.options)
    found = [_in_chunks(target, tiling) for tiling in _listed(target) if has_all(tiling, target.options)]
    return tuple(sorted(found, key=lambda tiling: tiling.seconds(target)))


def _listed(target: Target) -> Iterator[Tiling]:
    """What the families have, if a step of it is within the device's loop iterations. Some has not all that is forced."""
    for family in FAMILIES[target.room]:
        yield from (one for one in family.tilings(target) if one.has_iterations(target.profile.most_iterations))


def _found(target: Target) -> Iterator[Tiling]:
    _check_workgroup(target)
    in_order = ranked(target) if target.fastest is None else (target.fastest, *ranked(target))
    found = None
    for found in _fitted(target, in_order):
        yield found
    if found is None:
        raise _refusal(target)


def _fitted(target: Target, tilings: Iterable[Tiling]) -> Iterator[Tiling]:
    """Tilings of the size class, for the problem's own T and B, without those that cannot run it."""
    tilings, found = list(tilings), False
    for tiling in tilings:
        fitted = _fit(target, tiling)
        if fitted and (fitted.loop.schedule != PERSISTENT or fallbacks(target, fitted)):
            found = True
            yield fitted
    if not found:  # many dispatches are better than none
        yield from filter(None, (_fit(target, tiling, True) for tiling in tilings if tiling.loop.schedule == STEPPED))


def _fit(target: Target, tiling: Tiling, in_any_number: bool = False) -> Tiling | None:
    """A tiling of the size class, for the problem's own T and B, or None where it cannot run that.

    in_any_number: of dispatches.
    """
    loop, projection = replace(tiling.loop, problem=target.problem), tiling.projection
    if loop.schedule == STEPPED and not (_can_be_stepped(target) or in_any_number or target.options.schedule == STEPPED):
        return None
    if projection:
        projection = replace(projection, problem=target.problem)
        if projection.step_bytes > _most_step_bytes(target):
            return None
    tiling = replace(tiling, loop=loop, projection=projection)
    return _in_chunks(target, tiling) if _may_wait(target, tiling) and _has_a_step(target, tiling) else None


def _can_be_stepped(target: Target) -> bool:
    return target.problem.steps * target.problem.loop.phases <= _MOST_STEPS_RECORDED


def _may_wait(target: Target, tiling: Tiling) -> bool:
    """Whether a tiling may be chosen even if its workgroups wait for each other."""
    waits_by = tiling.loop.meeting
    if waits_by is None or target.options.schedule == PERSISTENT:
        return True
    return target.profile.tuned and waits_by not in target.without and tiling.fits_side_by_side(target)


def _has_a_step(target: Target, tiling: Tiling) -> bool:
    """Whether one step is within the limit. Parts with several tiles need more for a B above the representative's."""
    return tiling.steps_within(target.profile.most_iterations) >= 1


# What was measured

@dataclass(frozen=True)
class Measured:
    """The tiling that was the fastest of a size class, as `described`, and the seconds of each of its time steps, with what
    they have of the projection and of submitting.
    """

    tiling: Mapping[str, Any]
    step_seconds: float


def as_measured(target: Target, measured: Measured | None) -> Target:
    """The target with the tiling that was measured as its fastest, and a model by which a step of it takes as long as measured.
    The same target if nothing was measured, or a tiling that the families no longer have.
    """
    fastest = measured and next((one for one in ranked(target) if described(one) == measured.tiling), None)
    if not measured or not fastest:
        return target
    steps, expected = fastest.problem.steps, fastest.step_seconds(target)
    if fastest.projection:
        expected += fastest.projection_seconds(target, steps) / steps
    return replace(target, fastest=fastest, times=measured.step_seconds / expected)


def described(part: Any) -> dict[str, Any]:
    """All that tells a tiling from the others of its size class, as JSON can have it: not what is fitted to T and B."""
    values = {field.name: getattr(part, field.name) for field in fields(part) if field.name != "chunk_steps"}
    return {name: described(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items() if not isinstance(value, Problem | ElementType)}


# Refusals

def _check_workgroup(target: Target) -> None:
    workgroup, most = target.options.workgroup, target.info.max_workgroup_invocations
    if workgroup is None:
        return
    whole = min(family.whole_units(target) for family in FAMILIES[target.room])
    if workgroup % whole or workgroup > most:
        raise InvalidArgumentError(target.problem.operator, "options.workgroup", workgroup,
                                   f"a multiple of {whole}, at most {most}")


def _refusal(target: Target) -> InvalidArgumentError:
    """The error that names the first option which none of the tilings has that have the ones before it.

    Those are looked at that the families list with all options or, if these leave none, without any.
    """
    problem, info, options = target.problem, target.info, replace(target.options, workspace_bytes=WORKSPACE_BYTES)
    limit, sizes = info.max_storage_buffer_range, f"H = {problem.hidden}, I = {problem.input_size}"
    of_class = Target(with_sizes_of_class(problem), info, options)
    own = replace(target, options=options)
    left = list(_fitted(own, _listed(of_class))) or list(_fitted(own, ranked(Target(problem, info))))
    if not left:
        projections = [replace(one.projection, problem=problem) for one in ranked(of_class) if one.projection]
        least = min((projection.step_bytes for projection in projections), default=0)
        if least > limit:
            return InvalidArgumentError(problem.operator, GATES, f"{least} bytes for a time step",
                                        f"at most {limit}, the largest storage buffer of {info.name}")
        return InvalidArgumentError(problem.operator, "sizes", sizes, f"ones that {info.name} can loop over in one dispatch")
    items, others = sorted(forced(target.options).items(), key=lambda item: item[0] != "lanes"), ""  # lanes choose the family
    for name, value in items:
        has_it = [tiling for tiling in left if has_all(tiling, Options(**{name: value}))]
        if not has_it or name == items[-1][0]:
            break
        left, others = has_it, f"{others}{name} = {value!r}, "
    return InvalidArgumentError(
        problem.operator, f"options.{name}", shown(value),
        f"{left_values(name, left)} with {others}{sizes} and {problem.element.name} on {info.name}")


# Chunks

def _most_step_bytes(target: Target) -> int:
    """Most bytes of the projection of one time step: unless it is forced, the bound of many does not bound one."""
    largest, options = target.info.max_storage_buffer_range, target.options
    return min(options.workspace_bytes, largest) if "workspace_bytes" in forced(options) else largest


def _in_chunks(target: Target, tiling: Tiling) -> Tiling:
    """The tiling with the most time steps that a dispatch of the time loop, and one of the projection, may run."""
    loop, projection, steps, info, options = tiling.loop, tiling.projection, target.problem.steps, target.info, target.options
    by_iterations = tiling.steps_within(target.profile.most_iterations)
    most = min(steps, options.chunk_steps or steps, by_iterations, tiling.most_steps(target))
    loop = replace(loop, chunk_steps=1 if loop.schedule == STEPPED else max(1, most))
    if projection:
        in_time = int(target.profile.submission_seconds / tiling.projection_seconds(target, 1))
        room = min(options.workspace_bytes, target.workspace_bytes or options.workspace_bytes, info.max_storage_buffer_range)
        most = min(steps, room // projection.step_bytes, info.max_workgroup_count // projection.tiles(1), in_time)
        projection = replace(projection, chunk_steps=max(1, most))
    return replace(tiling, loop=loop, projection=projection)
