"""The tilings of a problem that a device can run and the options allow, and the choice among them.

They are found and ranked for the representative of the problem's size class (size_classes.py), once; each is then fitted to the
problem's own T and B. So kernels are chosen for a class, and a new length or batch costs no more than that arithmetic.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from ..errors import InvalidArgumentError, shown
from ..operators.problem import Problem
from .costs import Costs, Measured, described
from .device_info import DeviceInfo
from .families import families_of
from .options import PERSISTENT, STEPPED, Options, forced, has_all, left_values
from .size_classes import class_facts, with_sizes_of_class
from .tiling import GATES, Machine, Target, Tiling

_MOST_STEPS_RECORDED = 2000  # stepped, a phase of a step is a dispatch, which takes some of the host's memory
_CLASSES_KEPT = 1024


class Planner:
    """A problem on a device, with options.

    measured: of the problem's size class. without: meetings that persistent tilings must not use unless they are forced.
    workspace_bytes: a bound beside that of the options, where memory is short. It has no part in the choice of a tiling, so it
    changes no result.
    """

    def __init__(self, problem: Problem, info: DeviceInfo, options: Options = Options(), measured: Measured | None = None,
                 without: frozenset[str] = frozenset(), workspace_bytes: int | None = None) -> None:
        self._workspace_bytes = workspace_bytes
        self.problem, self.info, self.options = problem, info, options
        self.machine = Machine(info)
        self.profile = self.machine.profile
        self._measured, self._without = measured, without

    @cached_property
    def costs(self) -> Costs:
        """The model, corrected by what was measured."""
        model = Costs(self.info)
        return model.corrected(self._fastest, self._measured.step_seconds) if self._measured and self._fastest else model

    def best(self) -> Tiling:
        """The fastest in the problem's size class, as measured or else by the model, of those that can run the problem itself.

        Raises InvalidArgumentError if there is none.
        """
        found = next(self._fitted(), None)
        if found is None:
            raise self._refusal()
        return found

    def tilings(self) -> list[Tiling]:
        """All of them, the fastest of the size class first. Raises InvalidArgumentError if there is none."""
        found = list(self._fitted())
        if not found:
            raise self._refusal()
        return found

    def fallbacks(self, tiling: Tiling) -> list[Tiling]:
        """What can run instead of a persistent tiling with the same packed weights and projection, the fastest first."""
        found = tiling.fallbacks(self.options, self.machine)
        others = [other for other in found if self._has_iterations(other)
                  and (other.loop.schedule != STEPPED or self._can_be_stepped)]
        return sorted(map(self._in_chunks, others), key=self.costs.seconds)

    def ranked(self) -> tuple[Tiling, ...]:
        """The tilings of the representative that the options allow, the fastest first."""
        target = Target(self.problem, self.machine, self.options)
        found = [tiling for family in families_of(target) for tiling in family.tilings(target)]
        found = [self._in_chunks(tiling) for tiling in found
                 if tiling.has_iterations(self.profile.most_iterations) and has_all(tiling, self.options)]
        return tuple(sorted(found, key=self.costs.seconds))

    @property
    def _can_be_stepped(self) -> bool:
        return self.problem.steps * self.problem.loop.phases <= _MOST_STEPS_RECORDED

    def _fitted(self) -> Iterator[Tiling]:
        self._check_workgroup()
        ranked = _ranked(_size_class(self))
        in_order = ranked if self._fastest is None else (self._fastest, *ranked)
        found = False
        for tiling in in_order:
            fitted = self._fit(tiling)
            if fitted and (fitted.loop.schedule != PERSISTENT or self.fallbacks(fitted)):
                found = True
                yield fitted
        if not found:  # many dispatches are better than none
            yield from filter(None, (self._fit(tiling, True) for tiling in in_order if tiling.loop.schedule == STEPPED))

    @cached_property
    def _fastest(self) -> Tiling | None:
        """The size class's, if it was measured and is one of today's tilings."""
        if self._measured is None:
            return None
        return next((tiling for tiling in _ranked(_size_class(self)) if described(tiling) == self._measured.tiling), None)

    def _may_wait(self, tiling: Tiling) -> bool:
        """Whether a tiling may be chosen even if its workgroups wait for each other."""
        waits_by = tiling.loop.meeting
        if waits_by is None or self.options.schedule == PERSISTENT:
            return True
        return self.profile.tuned and waits_by not in self._without and tiling.fits_side_by_side(self.machine)

    def _fit(self, tiling: Tiling, in_any_number: bool = False) -> Tiling | None:
        """A tiling of the size class, for the problem's own T and B, or None where it cannot run that.

        in_any_number: of dispatches.
        """
        loop, projection = replace(tiling.loop, problem=self.problem), tiling.projection
        if loop.schedule == STEPPED and not (self._can_be_stepped or in_any_number or self.options.schedule == STEPPED):
            return None
        if projection:
            projection = replace(projection, problem=self.problem)
            if projection.step_bytes > self._most_step_bytes:
                return None
        tiling = replace(tiling, loop=loop, projection=projection)
        return self._in_chunks(tiling) if self._may_wait(tiling) and self._has_iterations(tiling) else None

    def _has_iterations(self, tiling: Tiling) -> bool:
        """Whether one step is within the limit. Parts with several tiles need more for a B above the representative's."""
        return tiling.steps_within(self.profile.most_iterations) >= 1

    def _check_workgroup(self) -> None:
        workgroup, most = self.options.workgroup, self.info.max_workgroup_invocations
        if workgroup is None:
            return
        target = Target(self.problem, self.machine, self.options)
        whole = min(family.whole_units(target) for family in families_of(target))
        if workgroup % whole or workgroup > most:
            raise InvalidArgumentError(self.problem.operator, "options.workgroup", workgroup,
                                       f"a multiple of {whole}, at most {most}")

    def _refusal(self) -> InvalidArgumentError:
        """The error that names the first option that leaves nothing of what the ones before it leave."""
        problem, items = self.problem, list(forced(self.options).items())
        planners = [Planner(problem, self.info, Options(**dict(items[:count]))) for count in range(len(items) + 1)]
        left = [list(planner._fitted()) for planner in planners]
        culprit = left.index([])
        sizes = f"H = {problem.hidden}, I = {problem.input_size}"
        if culprit == 0:
            return planners[0]._refusal_of_sizes(sizes)
        *before, (name, value) = items[:culprit]
        others = "".join(f"{other} = {its!r}, " for other, its in before)
        return InvalidArgumentError(
            problem.operator, f"options.{name}", shown(value),
            f"{left_values(name, left[culprit - 1])} with {others}{sizes} and {problem.element.name} on {self.info.name}")

    def _refusal_of_sizes(self, sizes: str) -> InvalidArgumentError:
        """The error where nothing is forced: a time step's projection that no buffer holds, or else loops without end."""
        name, limit = self.info.name, self.info.max_storage_buffer_range
        projections = [replace(tiling.projection, problem=self.problem) for tiling in _ranked(_size_class(self))
                       if tiling.projection]
        of_step = min((projection.step_bytes for projection in projections), default=0)
        if of_step > limit:
            return InvalidArgumentError(self.problem.operator, GATES, f"{of_step} bytes for a time step",
                                        f"at most {limit}, the largest storage buffer of {name}")
        return InvalidArgumentError(self.problem.operator, "sizes", sizes, f"ones that {name} can loop over in one dispatch")

    # Chunks

    @property
    def _most_step_bytes(self) -> int:
        """Most bytes of the projection of one time step: unless it is forced, the bound of many does not bound one."""
        largest = self.info.max_storage_buffer_range
        return min(self.options.workspace_bytes, largest) if "workspace_bytes" in forced(self.options) else largest

    @property
    def _most_gates_bytes(self) -> int:
        bounds = (self.options.workspace_bytes, self._workspace_bytes, self.info.max_storage_buffer_range)
        return min(bound for bound in bounds if bound is not None)

    def _in_chunks(self, tiling: Tiling) -> Tiling:
        """The tiling with the most time steps that a dispatch of the time loop, and one of the projection, may run."""
        loop, projection, steps = tiling.loop, tiling.projection, self.problem.steps
        in_time = tiling.most_steps(self.machine, self.costs.step_seconds(tiling))
        by_iterations = tiling.steps_within(self.profile.most_iterations)
        most = min(steps, self.options.chunk_steps or steps, by_iterations, in_time)
        loop = replace(loop, chunk_steps=1 if loop.schedule == STEPPED else max(1, most))
        if projection:
            in_time = int(self.profile.submission_seconds / self.costs.projection_seconds(tiling, 1))
            most = min(steps, self._most_gates_bytes // projection.step_bytes,
                       self.info.max_workgroup_count // projection.tiles(1), in_time)
            projection = replace(projection, chunk_steps=max(1, most))
        return replace(tiling, loop=loop, projection=projection)


def best_of_each_way(tilings: Iterable[Tiling]) -> list[Tiling]:
    """The first of each way to order the steps: of each schedule, and of each meeting."""
    ways: dict[tuple[str, str | None], Tiling] = {}
    for tiling in tilings:
        ways.setdefault((tiling.loop.schedule, tiling.loop.meeting), tiling)
    return list(ways.values())


@dataclass(frozen=True)
class _SizeClass:
    """All that the tilings of a size class depend on. planner: of a problem in it."""

    key: Hashable
    planner: Planner = field(compare=False)


def _size_class(planner: Planner) -> _SizeClass:
    return _SizeClass((planner.info, planner.options, planner.profile, *class_facts(planner.problem).values()), planner)


@lru_cache(_CLASSES_KEPT)
def _ranked(of_class: _SizeClass) -> tuple[Tiling, ...]:
    planner = of_class.planner
    return Planner(with_sizes_of_class(planner.problem), planner.info, planner.options).ranked()
