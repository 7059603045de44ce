"""The kernels for float64: tiles of one row, whose units are spread over a workgroup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from math import gcd
from typing import ClassVar

from ...operators.checks import ceil_div, round_up
from ..tiling import KernelTiling, Packing, ProjectionTiling, Target, Tiling, gates_of_phases, loops, masked
from .parts import PartsLoop, PartsTiling, parts_of, schedules_of

# Invocations of a workgroup: in the time loop a multiple of the first number, in the projection at most the second one
_LEAST_WORKGROUP, _PROJECTION_WORKGROUP = 32, 64


@dataclass(frozen=True)
class Float64Tiling(PartsTiling):
    """A tiling of the float64 kernels: fused or projected, in sequence or stepped."""

    product_cost: ClassVar[int] = 20

    @staticmethod
    def whole_units(target: Target) -> int:
        return 1

    @staticmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        for schedule, is_projected in product(schedules_of(target), (False, True)):
            parts = parts_of(target, schedule, 1, 1)
            if parts:
                found = (_tiling(target, schedule, is_projected, parts, workgroup) for workgroup in _workgroups(target, parts))
                yield from islice((one for one in found if one.has_iterations(target.profile.most_iterations)), 1)

    def phase_loops(self, gates: int) -> int:
        """Bound a phase. Each activation has an exponential, a logarithm and up to four divisions, in code that all share."""
        activation = loops(3) + loops(4) + loops(7) + 4 * loops(2)
        activations = loops(len(self.problem.cell.gates) + 1, activation)
        return self.turn_loops(gates, self.product_loops(self.loop, self.loop.hidden, gates) + activations)

    def loops_of_step(self) -> int:
        """Bound a step. A loop runs the phases, which share their code."""
        gates = gates_of_phases(self.problem)
        return super().loops_of_step() + loops(len(gates)) + masked(self.phase_loops(gates[0]))

    @staticmethod
    def product_loops(tiling: KernelTiling, packing: Packing, gates: int) -> int:
        return loops(packing.loads, loops(gates, loops(4), 1), 2)


def _workgroups(target: Target, parts: int) -> Iterator[int]:
    """Yield sizes of workgroups for a part's units: first one that takes the fewest turns, then larger ones that loop less."""
    info, options = target.info, target.options
    units = ceil_div(target.problem.hidden, parts)
    turns = ceil_div(units, min(target.profile.most_workgroup, info.max_workgroup_invocations))
    workgroup = options.workgroup or round_up(ceil_div(units, turns), _LEAST_WORKGROUP)
    while workgroup <= (options.workgroup or info.max_workgroup_invocations):
        yield workgroup
        workgroup *= 2


def _tiling(target: Target, schedule: str, is_projected: bool, parts: int, workgroup: int) -> Float64Tiling:
    problem = target.problem
    units = round_up(problem.hidden, workgroup)
    loop = PartsLoop(
        problem=problem, kernel=f"float64/{problem.cell.kernel}", schedule=schedule, rows=1, parts=parts, workgroup=workgroup,
        units=units, hidden=Packing(problem.element, ceil_div(problem.hidden, problem.element.columns_per_load), units))
    loop = replace(loop, shared_state=loop.may_share_state(target))
    packed = Packing(problem.element, ceil_div(problem.input_size, problem.element.columns_per_load), units)
    if not is_projected:
        return Float64Tiling(loop, packed, None)
    of_projection = gcd(workgroup, _PROJECTION_WORKGROUP)
    return Float64Tiling(loop, packed, ProjectionTiling(
        problem=problem, kernel="float64/projection", rows=1, workgroup=of_projection, units=units, group_units=of_projection,
        input=packed))
