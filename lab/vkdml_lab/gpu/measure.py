"""Plans a case (a problem) for a GPU, compiles the kernels, and adds the compiler's figures and estimates of times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

from vkdml import Options, VkdmlError
from vkdml_lab.gpu.cases import AnyCase, Case, PlainCase
from vkdml_lab.gpu.compiler import Compiler, Pipeline
from vkdml_lab.gpu.gpus import Gpu
from vkdml_lab.gpu.loops import Loop, of_products
from vkdml_lab.gpu.model import Estimate, estimate
from vkdml_lab.gpu.sharing import GATES, MEMORY, atomics_of_elements, loads_before_waiting, scratch_accesses, shared
from vkdml_lab.gpu.steps import LoopStep, step_of
from vkdml_lab.internals import Dispatch, Target, ceil_div, plan, plan_plain, plans_of_first_call, profile, tilings, time_loop

DEFAULT, PERSISTENT, STEPPED, SEQUENCE, TRIED = "default", "persistent", "stepped", "sequence", "tried"
FORCED = {
    DEFAULT: Options(),
    SEQUENCE: Options(schedule="sequence"),
    STEPPED: Options(schedule="stepped"),
    PERSISTENT: Options(schedule="persistent"),
}
FALLBACK = ", fallback"  # suffix for a plan's fallback
ATOMICS, SCRATCH_ACCESSES = "atomics of an element", "accesses of scratch"
_TRIED = 5  # the tuner may choose any of these candidates after the first


@dataclass(frozen=True)
class Part:
    """A compiled kernel of a plan. plan: name of its options. dispatch: the one with the most workgroups that runs the kernel.
    step: facts about a step of a time loop or projection, else None. estimate: of the step's time; None if the assembly is
    unknown. counts: numbers of instructions of some kinds in the assembly.
    """

    gpu: Gpu
    case: AnyCase
    plan: str
    dispatch: Dispatch
    pipeline: Pipeline
    step: LoopStep | None
    estimate: Estimate | None
    counts: dict[str, float] = field(default_factory=dict)

    @property
    def is_loop(self) -> bool:
        return self.step is not None and not self.is_projection

    @property
    def is_projection(self) -> bool:
        return self.dispatch.kernel.endswith("/projection")

    @property
    def waits(self) -> bool:
        """Whether workgroups of the kernel wait for each other: the kernel's name contains "_persistent"."""
        return "_persistent" in self.dispatch.kernel

    @property
    def workgroups(self) -> int:
        return prod(self.dispatch.groups)


def parts(compiler: Compiler, case: AnyCase, forced: dict[str, Options] = FORCED) -> Iterator[Part | str]:
    """Yield each kernel of a case's plans, and a sentence for each plan that is refused. forced: options by plan's name."""
    if isinstance(case, PlainCase):
        yield from _parts(compiler, case, DEFAULT, plan_plain(case.problem, compiler.info).execute)
        return
    for name, options in forced.items():
        try:
            built = plan(case.problem, compiler.info, options)
        except VkdmlError as error:
            yield f"{compiler.gpu.name} {case.name} {name}: {error}"
            continue
        yield from _parts(compiler, case, name, built.initialize + built.execute)
        yield from _parts(compiler, case, name + FALLBACK, built.fallback)
    if forced == FORCED:
        target = Target(case.problem, compiler.info)
        for tiling in tilings(target)[1:1 + _TRIED]:
            yield from _parts(compiler, case, TRIED, time_loop(target, tiling))


def first_call(compiler: Compiler, case: Case) -> dict[str, float]:
    """Return the seconds of compiling in a case's first call, by purpose and for "all". Each pipeline counts once."""
    made: set[int] = set()
    found: dict[str, float] = {}
    for what, plans in plans_of_first_call(case.problem, compiler.info).items():
        pipelines = {id(one): one for plan in plans for one in map(compiler.compile, plan.initialize + plan.execute)}
        found[what] = sum(one.ms for key, one in pipelines.items() if key not in made) / 1e3
        made |= pipelines.keys()
    return found | {"all": sum(found.values())}


def _parts(compiler: Compiler, case: AnyCase, name: str, dispatches: tuple[Dispatch, ...]) -> Iterator[Part]:
    largest: dict[int, Part] = {}
    for dispatch in dispatches:
        pipeline = compiler.compile(dispatch)
        part = Part(compiler.gpu, case, name, dispatch, pipeline, None, None)
        if id(pipeline) not in largest or part.workgroups > largest[id(pipeline)].workgroups:
            largest[id(pipeline)] = part
    rates = profile(compiler.info).rates
    yield from (_estimated(part, rates.dispatch) for part in largest.values())


def _estimated(part: Part, dispatch: float) -> Part:
    if part.pipeline.error:
        return part
    part = replace(part, counts=_counts(part))
    step = step_of(part.dispatch)
    if step is None:
        return part
    found = estimate(part.gpu, part.pipeline, step, part.workgroups, part.dispatch.constants["WORKGROUP"], dispatch)
    return replace(part, step=step, estimate=found)


def _gates_ahead(code: Loop, constants: dict[str, int], width: int) -> float:
    """Return how many loads of projected gates come before a step's first poll, for each row that an invocation finishes."""
    of_first_phase = constants["GATES"] - constants["PHASES"] + 1
    loads = loads_before_waiting(of_products(code), 4 * of_first_phase, width)
    return loads / ceil_div(constants["ROWS"], constants["COLUMN_GROUPS"])


def _counts(part: Part) -> dict[str, float]:
    code = part.pipeline.code
    if code is None:
        return {}
    found: dict[str, float] = {SCRATCH_ACCESSES: scratch_accesses(code)}
    if part.waits:
        constants = part.dispatch.constants
        found |= shared(code, MEMORY[part.gpu.name], constants["PHASES"])
        found[GATES] = _gates_ahead(code, constants, part.pipeline.width)
    if part.case.has_sixteen_bits:
        found[ATOMICS] = atomics_of_elements(code, part.waits)
    return found
