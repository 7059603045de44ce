"""The tilings of a problem that a device can run and the options allow, and the choice among them.

They are found and ranked for the representative of the problem's size class (size_classes.py), once; each is then fitted to the
problem's own T and B. So kernels are chosen for a class, and a new length or batch costs no more than that arithmetic.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..errors import InvalidArgumentError
from ..spec.problem import Problem
from . import iterations, profiles
from .costs import SUBMISSION_SECONDS, Costs
from .device_info import DeviceInfo
from .forced import allowed, forced, has_all
from .options import PERSISTENT, STEPPED, Options, check_options
from .profiles import RESIDENT
from .shapes import Shapes
from .size_classes import representative
from .tiling import ProjectionTiling, Tiling

_MOST_STEPS_RECORDED = 2000  # stepped, a phase of a step is a dispatch, which takes some of the host's memory
_CLASSES_KEPT = 1024


class Planner:
    """A problem on a device, with options."""

    def __init__(self, problem: Problem, info: DeviceInfo, options: Options = Options()) -> None:
        check_options(options)
        self.problem, self.info, self.options = problem, info, options
        self.profile = profiles.profile(info)
        self.costs = Costs(info)

    def best(self) -> Tiling:
        """The fastest by the model in the problem's size class, of those that can run the problem itself.

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
        loop = tiling.loop
        alone = [other for other in self._shapes.in_one_part(tiling)
                 if other.rows * other.tiles <= loop.rows * loop.tiles]  # for which the state has room
        if loop.kernel != RESIDENT and self._can_be_stepped:
            alone.append(replace(loop, schedule=STEPPED, spins=0))
        return sorted((self._in_chunks(replace(tiling, loop=other)) for other in alone), key=self.costs.seconds)

    def ranked(self) -> tuple[Tiling, ...]:
        """Of the representative: those that the options allow, the fastest first."""
        found = [self._in_chunks(tiling) for tiling in self._shapes.tilings() if has_all(tiling, self.options)]
        return tuple(sorted(found, key=self.costs.seconds))

    @property
    def _shapes(self) -> Shapes:
        return Shapes(_representative(self.problem), self.info, self.options)

    @property
    def _can_be_stepped(self) -> bool:
        return self.problem.steps * self.problem.loop.phases <= _MOST_STEPS_RECORDED

    def _fitted(self) -> Iterator[Tiling]:
        self._check_workgroup()
        for tiling in _ranked(_SizeClass.of(self)):
            fitted = self._fit(tiling)
            if fitted and (fitted.loop.schedule != PERSISTENT or self.fallbacks(fitted)):
                yield fitted

    def _fit(self, tiling: Tiling) -> Tiling | None:
        """A tiling of the size class, for the problem's own T and B, or None where it cannot run that."""
        loop, projection = replace(tiling.loop, problem=self.problem), tiling.projection
        if loop.schedule == STEPPED and not self._can_be_stepped and self.options.schedule != STEPPED:
            return None
        if projection:
            projection = replace(projection, problem=self.problem)
            if projection.step_bytes > self._most_gates_bytes:
                return None
        return self._in_chunks(replace(tiling, loop=loop, projection=projection))

    def _check_workgroup(self) -> None:
        workgroup, most = self.options.workgroup, self.info.max_workgroup_invocations
        if workgroup is None:
            return
        lanes = self._shapes.lanes
        if workgroup % lanes or workgroup > most:
            raise InvalidArgumentError(self.problem.operator, "options.workgroup", workgroup,
                                       f"a multiple of {lanes}, at most {most}")

    def _refusal(self) -> InvalidArgumentError:
        """Names the first option that leaves nothing of what the ones before it leave."""
        problem, items = self.problem, list(forced(self.options).items())
        planners = [Planner(problem, self.info, Options(**dict(items[:count]))) for count in range(len(items) + 1)]
        left = [list(planner._fitted()) for planner in planners]
        culprit = left.index([])
        sizes = f"H = {problem.hidden}, I = {problem.input_size}"
        if culprit == 0:
            return InvalidArgumentError(problem.operator, "sizes", sizes,
                                        f"ones that {self.info.name} can loop over in one dispatch")
        *before, (name, value) = items[:culprit]
        others = "".join(f"{other} = {its!r}, " for other, its in before)
        return InvalidArgumentError(
            problem.operator, f"options.{name}", repr(value),
            f"{allowed(name, left[culprit - 1])} with {others}{sizes} and {problem.element.name} on {self.info.name}")

    # Chunks

    @property
    def _most_gates_bytes(self) -> int:
        return min(self.options.workspace_bytes, self.info.max_storage_buffer_range)

    def _in_chunks(self, tiling: Tiling) -> Tiling:
        """With the most time steps that a dispatch of the time loop, and one of the projection, may run."""
        loop, steps = tiling.loop, self.problem.steps
        in_time = int(SUBMISSION_SECONDS / self.costs.step_seconds(tiling))
        by_iterations = iterations.most_steps(tiling, self.profile.most_iterations)
        most = min(steps, self.options.chunk_steps or steps, by_iterations, in_time)
        loop = replace(loop, chunk_steps=1 if loop.schedule == STEPPED else max(1, most))
        return replace(tiling, loop=loop, projection=self._projection_in_chunks(tiling.projection))

    def _projection_in_chunks(self, projection: ProjectionTiling | None) -> ProjectionTiling | None:
        if projection is None:
            return None
        in_time = int(SUBMISSION_SECONDS / self.costs.projection_seconds(projection, 1))
        most = min(self.problem.steps, self._most_gates_bytes // projection.step_bytes,
                   self.info.max_workgroup_count // projection.tiles(1), in_time)
        return replace(projection, chunk_steps=max(1, most))


def _representative(problem: Problem) -> Problem:
    """The problem with the T and B of its size class's representative."""
    sizes = representative(problem.steps, problem.batch)
    return replace(problem, steps=sizes.steps, batch=sizes.batch)


@dataclass(frozen=True)
class _SizeClass:
    """All that the tilings of a size class depend on. planner: of a problem in it."""

    key: Hashable
    planner: Planner = field(compare=False)

    @staticmethod
    def of(planner: Planner) -> _SizeClass:
        problem = planner.problem
        key = (planner.info, planner.options, planner.profile, representative(problem.steps, problem.batch),
               problem.cell.name, problem.loop, problem.element, problem.hidden, problem.input_size, problem.directions,
               problem.has("SequenceLengthsTensor"), problem.has("PeepholeTensor"))
        return _SizeClass(key, planner)


@lru_cache(_CLASSES_KEPT)
def _ranked(of_class: _SizeClass) -> tuple[Tiling, ...]:
    planner = of_class.planner
    return Planner(_representative(planner.problem), planner.info, planner.options).ranked()
