"""Lists demands: bounds on figures of compiled kernels, such as the number of spills. A Part is a compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from vkdml_lab.gpu import times
from vkdml_lab.gpu.cases import PROJECTION, Case
from vkdml_lab.gpu.gpus import DESKTOP
from vkdml_lab.gpu.measure import ATOMICS, DEFAULT, PERSISTENT, SCRATCH_ACCESSES, TRIED, Part
from vkdml_lab.gpu.sharing import GATES, STORES, WORDS
from vkdml_lab.internals import Problem

_WITHOUT_16_BITS = "adreno618"  # its driver has no 16-bit storage
_TIMED = ("rx7900xtx", "rtx3090", "rtx4090", "arc-a770")


# Figures of a part

def _figure(name: str) -> Callable[[Part], float | None]:
    return lambda part: part.pipeline.figures.get(name)


def _count(name: str) -> Callable[[Part], float | None]:
    return lambda part: part.counts.get(name)


def _failed(part: Part) -> float:
    return bool(part.pipeline.error)


def _unread(part: Part) -> float:
    return part.step is not None and part.estimate is None


def _microseconds(part: Part) -> float | None:
    return part.estimate.seconds * 1e6 if part.estimate and part.is_loop else None


def _share_of_known(part: Part) -> float | None:
    """Return the estimated time of the kernel's step, divided by the time in times.txt. None if there is no such time."""
    known = times.KNOWN.get((part.gpu.name, part.case.name, part.plan))
    found = _microseconds(part)
    return found / known if found and known else None


def _weights_loaded(part: Part) -> float | None:
    """Return the loads of weights by an invocation in a pass. None unless the plan should keep all weights on the core."""
    if not part.estimate or not part.step or part.plan != PERSISTENT or not part.is_loop or part.step.streams:
        return None
    return max(0.0, part.estimate.step.totals["weight loads"] / part.step.passes - part.step.own_loads)


def _rounds(part: Part) -> float | None:
    """Return in how many batches the workgroups run. None if they do not wait for each other, or if options force the plan."""
    return part.estimate.rounds if part.estimate and part.waits and part.plan in (DEFAULT, TRIED) else None


def _share_of_peak(part: Part) -> float | None:
    """Return the rate of the time loop's useful multiply-adds, divided by the GPU's peak rate. None for other kernels."""
    if not part.estimate or not part.is_loop:
        return None
    problem, rates = part.case.problem, part.gpu.rates
    assert isinstance(problem, Problem)  # these cases have a time loop
    multiply_adds = problem.batch * problem.directions * len(problem.cell.gates) * problem.hidden**2
    return multiply_adds / part.estimate.seconds / (rates.units * rates.lanes * rates.clock)


def _share_of_floor(part: Part) -> float | None:
    """Return a step's estimated time, divided by the least time to read the weights that it loads. None if it loads none."""
    if not part.estimate or not part.is_loop:
        return None
    problem, constants, rates = part.case.problem, part.dispatch.constants, part.gpu.rates
    assert isinstance(problem, Problem)
    every = problem.directions * len(problem.cell.gates) * problem.hidden**2 * problem.element.itemsize
    kept = (constants["REGISTER_LOADS"] + constants["SHARED_LOADS"]) * constants["COLUMN_GROUPS"] / constants["HIDDEN_LOADS"]
    size = every * (1 if "stepped" in part.dispatch.kernel else 1 - kept)
    return round(part.estimate.seconds / (size / rates.rate_of(size)), 9) if size else None  # both may be equal


def _projection_share(part: Part) -> float | None:
    """Return the share of the projection's estimated cycles in which it multiplies and adds. None for other kernels."""
    found = part.estimate
    if not found or not part.is_projection:
        return None
    multiply_adds = found.step.totals["multiply-adds"] / part.gpu.rates.simd_lanes * found.subgroups
    bounds = ("instructions", "shared memory", "core's loads", "all cores' loads")
    return multiply_adds / max(found.limits[bound] for bound in bounds)


# The parts that a demand applies to

def _everywhere(part: Part) -> bool:
    return True


def _may_run(part: Part) -> bool:
    """Whether vkdml may choose the kernel's plan unforced. On desktop GPUs, the tuner or a fallback may use any plan."""
    return part.gpu.kind == DESKTOP or part.plan.startswith((DEFAULT, TRIED))


def _desktop(part: Part) -> bool:
    return part.gpu.kind == DESKTOP


def _of(cases: Iterable[Case], *plans: str, gpus: tuple[str, ...] = _TIMED) -> Callable[[Part], bool]:
    """Return a function that tells whether a kernel is of these cases, plans and GPUs. Without plans, any plan will do."""
    names = {case.name for case in cases}
    return lambda part: part.gpu.name in gpus and part.case.name in names and (not plans or part.plan in plans)


def _one_row(cell: str, two_phases: bool = False) -> list[Case]:
    return [Case(cell, (100, 1, width, width), two_phases) for width in (128, 256, 512, 1024)]


@dataclass(frozen=True)
class Demand:
    """A bound on a figure of compiled kernels. what: the figure's name. where: tells whether a kernel must keep the bound.
    figure: returns a kernel's figure; None if it has none. of_best: only the best kernel of each case on each GPU must keep it.
    """

    what: str
    where: Callable[[Part], bool]
    figure: Callable[[Part], float | None]
    most: float = float("inf")
    least: float = 0.0
    of_best: bool = False

    def is_kept(self, value: float) -> bool:
        return self.least <= value <= self.most


DEMANDS = [
    Demand("every pipeline compiles", _everywhere, _failed, most=0),
    Demand("the model can read every time loop and projection", _everywhere, _unread, most=0),
    Demand("spills", _may_run, _figure("spills"), most=0),
    Demand("bytes of scratch", _may_run, _figure("scratch"), most=0),
    Demand("accesses of scratch", _may_run, _count(SCRATCH_ACCESSES), most=0),
    # Figures of sharing.py: shared h, and 16-bit elements
    Demand("loops that poll h past the core's cache, for a phase", _everywhere, _count(WORDS), least=1),
    Demand("stores of h that other cores see, for a phase", _everywhere, _count(STORES), least=1),
    Demand("loads of the gates before the first poll of a step, for a row", _everywhere, _count(GATES), least=1),
    Demand("atomics for a stored element of 16 bits", lambda part: part.gpu.name != _WITHOUT_16_BITS, _count(ATOMICS), most=0),
    Demand("atomics for one, without 16-bit storage", lambda part: part.gpu.name == _WITHOUT_16_BITS, _count(ATOMICS), most=2),
    Demand("rounds of workgroups that wait for each other", _desktop, _rounds, most=1),
    Demand("us a step, of what lab/vkdml_lab/gpu/times.py has", _everywhere, _share_of_known, most=1.03),
    Demand("us a step, of what its weights take at least", _everywhere, _share_of_floor, least=1),
    Demand("share of peak", _everywhere, _share_of_peak, most=1),
    Demand("us a step, GRU, B = 1, persistent", _of(_one_row("gru"), PERSISTENT), _microseconds, most=1.5),
    Demand("us a step, GRU of two phases, B = 1, persistent", _of(_one_row("gru", True), PERSISTENT), _microseconds,
           most=2 * 1.5),
    Demand("us a step, LSTM, B = 1, persistent", _of(_one_row("lstm"), PERSISTENT), _microseconds, most=1.4 * 1.5),
    Demand("weights loaded in a step, where all stay on the core", _desktop, _weights_loaded, most=0),
    Demand("us a step, GRU, B = 4, H = 512, persistent", _of([Case("gru", (50, 4, 512, 512))], PERSISTENT), _microseconds,
           most=2),
    Demand("us a step, GRU, B = 16, H = 1024, best plan", _of([Case("gru", (50, 16, 1024, 1024))]), _microseconds, most=6,
           of_best=True),
    *(Demand("us a step, GRU, B = 64, H = 512, best plan", _of([Case("gru", (50, 64, 512, 512))], gpus=(gpu,)), _microseconds,
             most=most, of_best=True) for gpu, most in (("rx7900xtx", 10), ("rtx3090", 18))),
    Demand("share of peak, GRU, B = 64, H = 1024, best plan", _of([Case("gru", (25, 64, 1024, 1024))]), _share_of_peak,
           least=0.3, of_best=True),
    Demand("share of peak, projection of 4096 x 3072 x 1024", _of([PROJECTION], DEFAULT), _projection_share, least=0.5),
]


@dataclass(frozen=True)
class Expected:
    """Known breaches of a demand on a GPU: at most `parts` kernels, with figures no worse than `worst`. why: their cause."""

    demand: str
    gpu: str
    parts: int
    worst: float
    why: str

    def covers(self, broken: list[Held]) -> bool:
        return len(broken) <= self.parts and all(
            one.value >= self.worst if one.demand.least else one.value <= self.worst for one in broken)


_LSTM, _SIXTEEN_ROWS = "us a step, LSTM, B = 1, persistent", "us a step, GRU, B = 16, H = 1024, best plan"
_SPILLED, _ROUNDS = ("spills", "bytes of scratch", "accesses of scratch"), "rounds of workgroups that wait for each other"
_STREAMED = "16.8 MB of weights of H = 1024: about half of them are streamed, on the RTX 3090 from memory"
_SUMS = "the sums of 16 rows leave no registers for all weights, or two workgroups share a core"
_LIVE = "131 registers are live at once, of 128: the estimate takes 117"
_OVER = "NVK's compiler takes all 128 registers and spills 6: the estimate takes 125"
_TRIES = "NVK's compiler takes more registers than the estimate: a plan that only the tuner runs, gives up, and drops"
_LATE = "at its clock, a load from the cache takes 750 cycles"
EXPECTED = [
    Expected(_LSTM, "rtx3090", 1, 9, _STREAMED), Expected(_LSTM, "arc-a770", 1, 3.9, _STREAMED),
    Expected(_SIXTEEN_ROWS, "rtx3090", 1, 10.4, _SUMS), Expected(_SIXTEEN_ROWS, "arc-a770", 1, 12.7, _SUMS),
    Expected("share of peak, GRU, B = 64, H = 1024, best plan", "rtx3090", 1, 0.27, _SUMS),
    Expected("share of peak, GRU, B = 64, H = 1024, best plan", "rtx4090", 1, 0.299, _LATE),
    *(Expected(what, "tgl", 2, worst, _LIVE) for what, worst in zip(_SPILLED, (1, 1024, 9))),
    *(Expected(what, gpu, 6, worst, _OVER) for gpu in ("h200", "rtx4090", "rtx5090")
      for what, worst in zip(_SPILLED, (6, 16, 18))), Expected(_ROUNDS, "rtx2080", 2, 2, _TRIES),
    *(Expected(_ROUNDS, gpu, 1, 2, _TRIES) for gpu in ("h200", "rtx3090", "rtx4090", "rtx5090")),
]


@dataclass(frozen=True)
class Held:
    """A compiled kernel (a Part) to which a demand applies. value: the figure of the kernel that the demand bounds."""

    demand: Demand
    part: Part
    value: float

    @property
    def is_kept(self) -> bool:
        return self.demand.is_kept(self.value)


def hold(parts: Iterable[Part]) -> Iterator[Held]:
    every = list(parts)
    for demand in DEMANDS:
        held = [Held(demand, part, value) for part in every
                if demand.where(part) and (value := demand.figure(part)) is not None]
        yield from _best(demand, held) if demand.of_best else held


def _best(demand: Demand, held: list[Held]) -> Iterator[Held]:
    """Yield, of each case on each GPU, the kernel with the best figure: the highest if `least` is set, else the lowest."""
    def which(one: Held) -> tuple[str, str]:
        return one.part.gpu.name, one.part.case.name

    for _, of_case in groupby(sorted(held, key=which), which):
        yield (max if demand.least else min)(of_case, key=lambda one: one.value)
