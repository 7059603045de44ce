"""Chooses how to run a recurrent problem on a device. No Vulkan here. On one machine the same problem always gets the same
plan, unless tilings were measured (`Measured`).

docs/architecture.md has the three schedules, with one gate math (shaders/cells/). Each computes the input's part of all gates
first, as one matrix product for many time steps (the projection). Kernels for CPU drivers and for float64 may multiply it in
the loop instead (fused): one dispatch less, for few steps or few inputs. Unless forced, only GPUs on which all parts run at
once use persistent kernels.

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
from ..operators.header.descs import DML_BINDING_PROPERTIES
from ..operators.problem import Problem
from .device_info import DeviceInfo, laid_out
from .dispatches import Dispatch
from .families import FAMILIES
from .loop_dispatches import pack, time_loop
from .options import PERSISTENT, STEPPED, WORKSPACE_BYTES, Options, forced, has_all, left_values
from .size_classes import with_sizes_of_class
from .tiling import GATES, GAVE_UP, Target, Tiling

_MOST_STEPS_RECORDED = 2000  # most steps of stepped plans, as each phase of a step is a dispatch, which takes host memory
_CLASSES_KEPT = 1024


@dataclass(frozen=True)
class OperatorMemory:
    """The device memory that an operator takes: bytes by name. Its str() is a table.

    tensors: the least sizes of the buffers that you bind. temporary: buffers that an execution needs. persistent: the packed
    weights. If the device has its own memory, the host also has a copy of each tensor.
    """

    tensors: Mapping[str, int]
    temporary: Mapping[str, int]
    persistent: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(size for _, _, size in self.rows)

    @property
    def rows(self) -> list[tuple[str, str, int]]:
        """A row for each buffer: its kind, name and bytes."""
        groups = {"tensor": self.tensors, "temporary": self.temporary, "persistent": self.persistent}
        return [(what, name, size) for what, sizes in groups.items() for name, size in sizes.items()]

    def __str__(self) -> str:
        rows = [*self.rows, ("total", "", self.total)]
        widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
        return "\n".join(f"{what:<{widths[0]}}  {name:<{widths[1]}}  {size:>{widths[2]}}" for what, name, size in rows)


@dataclass(frozen=True)
class Plan:
    """The dispatches that run an operator on a device: initialize packs the weights, execute runs the operator.

    buffers: bytes of each buffer of packed weights or scratch. timed_out: the buffer whose first word reports that execute gave
    up; then fallback runs the operator. tiling: how it is run. seconds: of an execution, by the model. Both are None for an
    operator without a time loop.
    """

    initialize: tuple[Dispatch, ...]
    execute: tuple[Dispatch, ...]
    buffers: dict[str, int]
    fallback: tuple[Dispatch, ...] = ()
    timed_out: str | None = None
    tiling: Tiling | None = None
    seconds: float | None = None

    @property
    def submissions(self) -> int:
        """How many submissions an execution takes once weights are packed. A fallback has its own."""
        return 1 + sum(dispatch.starts_submission for dispatch in self.execute[1:])

    @property
    def packed(self) -> dict[str, int]:
        """Bytes of the packed weights, by name."""
        written = {name for dispatch in self.initialize for name in dispatch.writes}
        return {name: size for name, size in self.buffers.items() if name in written}

    @property
    def scratch(self) -> dict[str, int]:
        """Bytes of the other buffers, which an execution needs, by name."""
        return {name: size for name, size in self.buffers.items() if name not in self.packed}

    def memory(self, problem: CheckedOperator) -> OperatorMemory:
        """List the memory that the plan's operator takes."""
        return OperatorMemory(problem.tensor_bytes, self.scratch, self.packed)

    def binding_properties(self, problem: CheckedOperator, temporary: Mapping[str, int]) -> DML_BINDING_PROPERTIES:
        """Compute what an execution binds. temporary: bytes of each part of the temporary resource, by name."""
        packing = () if problem.initialized else self.initialize
        return DML_BINDING_PROPERTIES(_descriptors((*packing, *self.execute, *self.fallback)), laid_out(temporary)[1],
                                      laid_out(self.packed)[1])

    def initializer_descriptors(self, problem: CheckedOperator) -> int:
        """Count an initializer's descriptors. It needs no other resource: the operator's persistent one is its output."""
        return _descriptors(self.initialize if problem.initialized else ())

    def __str__(self) -> str:
        kernels = ", ".join(dict.fromkeys(dispatch.kernel for dispatch in self.execute))
        text = f"{len(self.execute)} dispatches of {kernels} in {self.submissions} submissions"
        if self.tiling is None:
            return text
        loop = self.tiling.loop
        return (f"{loop.schedule}, parts {loop.parts}, rows {loop.rows}, steps of a dispatch {loop.chunk_steps}; {text}, "
                f"estimated {1e3 * (self.seconds or 0):.3f} ms")


def _descriptors(dispatches: Iterable[Dispatch]) -> int:
    """Count the descriptors of dispatches: one for each buffer."""
    return len({name for dispatch in dispatches for name in dispatch.buffers.values()})


def plan(problem: Problem, info: DeviceInfo, options: Options = Options(), workspace_bytes: int | None = None) -> Plan:
    """Choose kernels, tiles and chunks. workspace_bytes: a bound on chunks if memory is short; it changes no other choice.

    Raises InvalidArgumentError for an option that no tiling has, and for sizes that the device cannot hold.
    """
    target = Target(problem, info, options, workspace_bytes=workspace_bytes)
    return plan_of(target, best(target))


def plan_of(target: Target, tiling: Tiling) -> Plan:
    """Make the plan of one of a target's tilings. Raises InvalidArgumentError for sizes that the device cannot hold."""
    built = Plan(pack(target, tiling), time_loop(target, tiling), tiling.buffers, tiling=tiling,
                 seconds=tiling.run_seconds(target))
    if tiling.loop.schedule == PERSISTENT:
        built = replace(built, fallback=time_loop(target, fallbacks(target, tiling)[0]), timed_out=GAVE_UP)
    check_limits(target.problem, target.info, built)
    return built


def check_limits(problem: CheckedOperator, info: DeviceInfo, plan: Plan) -> None:
    """Refuse a plan whose buffers or workgroups exceed the device's limits."""
    sizes = plan.buffers | problem.tensor_bytes
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
    """Choose the fastest tiling of the size class, as measured or else by the model, that can run the problem itself.

    Raises InvalidArgumentError if there is none.
    """
    return next(_found(target))


def tilings(target: Target) -> list[Tiling]:
    """List all tilings that can run the problem, the fastest first. Raises InvalidArgumentError if there is none."""
    return list(_found(target))


def fallbacks(target: Target, tiling: Tiling) -> list[Tiling]:
    """List the tilings that can replace a persistent one, with its packed weights and projection; the fastest first."""
    others = [other for other in tiling.fallbacks(target) if _has_a_step(target, other)
              and (other.loop.schedule != STEPPED or _can_be_stepped(target))]
    unbounded = replace(target, workspace_bytes=None)
    others.sort(key=lambda other: _in_chunks(unbounded, other).seconds(target))
    return [_in_chunks(target, other) for other in others]


def best_of_each_schedule(tilings: Iterable[Tiling]) -> list[Tiling]:
    """Pick the first tiling of each schedule."""
    first: dict[str, Tiling] = {}
    for tiling in tilings:
        first.setdefault(tiling.loop.schedule, tiling)
    return list(first.values())


@lru_cache(_CLASSES_KEPT)
def ranked(target: Target) -> tuple[Tiling, ...]:
    """List the tilings that the options allow for the size class's representative, the fastest by the model first."""
    target = Target(with_sizes_of_class(target.problem), target.info, target.options)
    found = [_in_chunks(target, tiling) for tiling in _listed(target) if has_all(tiling, target.options)]
    return tuple(sorted(found, key=lambda tiling: tiling.seconds(target)))


def _listed(target: Target) -> Iterator[Tiling]:
    """Yield the families' tilings whose steps keep to the limit on loop iterations. Some may lack forced options."""
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
    """Fit tilings of the size class to the problem's own T and B, and leave out those that cannot run it."""
    tilings, found = list(tilings), False
    for tiling in tilings:
        fitted = fit(target, tiling)
        if fitted and (fitted.loop.schedule != PERSISTENT or fallbacks(target, fitted)):
            found = True
            yield fitted
    if not found:  # too many dispatches are better than an error
        yield from filter(None, (fit(target, tiling, True) for tiling in tilings if tiling.loop.schedule == STEPPED))


def fit(target: Target, tiling: Tiling, in_any_number: bool = False) -> Tiling | None:
    """Fit a tiling of the size class to the problem's own T and B. Returns None if it cannot run the problem.

    in_any_number: whether it may have any number of dispatches.
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
    """Whether a tiling's workgroups do not wait for each other, or waiting is forced, or it is safe on this device."""
    if tiling.loop.schedule != PERSISTENT or target.options.schedule == PERSISTENT:
        return True
    return target.profile.tuned and target.may_wait and tiling.fits_side_by_side(target)


def _has_a_step(target: Target, tiling: Tiling) -> bool:
    """Whether one step keeps to the limit on loop iterations. With several tiles, a large B needs more than the class's."""
    return tiling.steps_within(target.profile.most_iterations) >= 1


# Measured tilings

@dataclass(frozen=True)
class Measured:
    """The tiling that was measured as the fastest of a size class.

    tiling: as `described` returns it. step_seconds: of a time step, with its share of the projection and of submitting.
    """

    tiling: Mapping[str, Any]
    step_seconds: float


def as_measured(target: Target, measured: Measured | None) -> Target:
    """Put the measured tiling first in a target, and scale its model so that a step takes as long as measured.

    Returns the same target if nothing was measured, or if the families no longer have that tiling.
    """
    fastest = measured and next((one for one in ranked(target) if described(one) == measured.tiling), None)
    if not measured or not fastest:
        return target
    steps, expected = fastest.problem.steps, fastest.step_seconds(target)
    if fastest.projection:
        expected += fastest.projection_seconds(target, steps) / steps
    return replace(target, fastest=fastest, times=measured.step_seconds / expected)


def described(part: Any) -> dict[str, Any]:
    """Describe a tiling in JSON's types, apart from T and B, so that no other tiling of its size class is described alike."""
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
    """Make an error that names the first forced option that no tiling has together with the options before it.

    It looks at the tilings that the families list with all options or, if none, without options and with the schedule alone.
    """
    problem, info, options = target.problem, target.info, replace(target.options, workspace_bytes=WORKSPACE_BYTES)
    limit, sizes = info.max_storage_buffer_range, f"H = {problem.hidden}, I = {problem.input_size}"
    of_class, own = Target(with_sizes_of_class(problem), info, options), replace(target, options=options)
    alone = (one for schedule in {None, options.schedule} for one in ranked(Target(problem, info, Options(schedule=schedule))))
    left = list(_fitted(own, _listed(of_class))) or list(_fitted(own, alone))
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
    """Return the most bytes that one time step of the projection may have: only a forced workspace_bytes bounds it."""
    largest, options = target.info.max_storage_buffer_range, target.options
    return min(options.workspace_bytes, largest) if "workspace_bytes" in forced(options) else largest


def _in_chunks(target: Target, tiling: Tiling) -> Tiling:
    """Give a tiling the most time steps that a dispatch of the time loop, and one of the projection, may run."""
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
