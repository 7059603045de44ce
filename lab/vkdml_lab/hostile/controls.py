"""Lists mistakes to plant in kernels. Modes (modes.py) must report them, or their silence on real kernels means nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from pathlib import Path

from tools import compile_shaders
from vkdml_lab.hostile import modes, tasks
from vkdml_lab.hostile.arithmetic import Arithmetic
from vkdml_lab.hostile.modes import Edits
from vkdml_lab.hostile.tasks import Task
from vkdml_lab.internals import PERSISTENT, SEQUENCE, STEPPED, Problem, Schedule

_TRIES = 32  # tasks with the kernel that are tried
_LARGE = 100  # units


@dataclass(frozen=True)
class Control:
    """A mistake to plant: in the shader `file`, the text `old` becomes `new`. kernel: source file of kernels, one of which a
    task must use. schedule: the tasks'; None: no time loop. seen: possible beginnings of the mode's report of the mistake.
    """

    name: str
    mode: str
    kernel: str
    file: str
    old: str
    new: str
    seen: tuple[str, ...]
    schedule: Schedule | None = None
    is_large: bool = False  # whether only tasks with many units show the mistake

    def result(self) -> str:
        """Run tasks on the kernels with the mistake. Returns the mode's first report of it, or "" if the mode misses it."""
        wrong = _mistaken(self.file, self.old, self.new, self.kernel)
        for seed in islice((seed for seed in count() if self._suits(self.task(seed))), _TRIES):
            found = modes.MODES[self.mode].run(seed, self.task(seed), wrong)
            texts = [text for text in (*found.wrong, found.note) if text.startswith(self.seen)]
            if texts:
                return texts[0]
        return ""

    def task(self, seed: int) -> Task:
        return _recurrent(seed, self.schedule) if self.schedule else tasks.plain(seed)

    def _suits(self, task: Task) -> bool:
        names = {dispatch.kernel for dispatch in task.plan.initialize + task.plan.execute}
        is_large = isinstance(task.problem, Problem) and task.problem.hidden >= _LARGE
        return not names.isdisjoint(_named(self.kernel)) and is_large >= self.is_large


@lru_cache(1000)
def _recurrent(seed: int, schedule: Schedule) -> Task:
    return tasks.recurrent(seed, (schedule,))


@lru_cache
def _named(source: str) -> frozenset[str]:
    """Return the names of the kernels that are compiled from a source file, one for each cell and element size."""
    return frozenset(kernel for kernel, (path, _) in compile_shaders.sources(compile_shaders.SHADERS).items()
                     if path == compile_shaders.SHADERS / f"{source}.comp")


@lru_cache
def _mistaken(file: str, old: str, new: str, source: str) -> Edits:
    with tempfile.TemporaryDirectory() as folder:
        return compile_shaders.mistaken(Path(folder), file, old, new, _named(source).__contains__)


_WRONG, _LOST = ("Output", "other bits"), ("NaN becomes a number",)

CONTROLS = [
    # The test suite runs the first four
    Control("no barrier behind what is fetched", "watched", "gpu/CELL_stepped", "gpu/part_step.glsl",
            "    barrier();\n    float sums[SUMS];", "    float sums[SUMS];", ("race, read after write: tile",), STEPPED),
    Control("no bound on the columns that are loaded", "watched", "gpu/projection", "gpu/product_tile.glsl",
            "min(column + c, INPUTS - 1)", "(column + c)", ("out of bounds: InputTensor",), SEQUENCE),
    Control("isnan(), which a driver may fold", "inexact", "elementwise", "common/elements.glsl",
            "return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u;", "return isnan(x);", _LOST),
    Control("polls of one word of four", "weak", "gpu/CELL_persistent", "gpu/persistent.glsl",
            "max(max(largest.x, largest.y), max(largest.z, largest.w))", "largest.x", _WRONG, PERSISTENT),
    Control("clip made of comparisons, of which a driver may make min and max", "inexact", "gpu/CELL", "common/activations.glsl",
            "? bounded(x, -bound, bound) :", "? mix(mix(x, -bound, x < -bound), bound, bound < x) :", _LOST, SEQUENCE),
    Control("polls of one vector of several", "weak", "gpu/CELL_persistent", "gpu/persistent.glsl",
            "n = 1; n < FETCHES", "n = 1; n < 1", _WRONG, PERSISTENT, True),
    Control("outputs past a row's length not written", "watched", "gpu/CELL", "common/time_loop.glsl",
            "time >= length_of(r))", "time > length_of(r))", ("Output",), SEQUENCE),
    Control("no barrier at the end of a phase", "watched", "gpu/CELL", "gpu/CELL.comp", "void phase_barrier() { barrier(); }",
            "void phase_barrier() {}", ("race, ",), SEQUENCE),
    Control("no barrier before sums are read", "watched", "gpu/CELL", "gpu/products.glsl", "    barrier();\n    if (SPLIT > 1)",
            "    if (SPLIT > 1)", ("race, ",), SEQUENCE),
    Control("no barrier before a block is stored", "watched", "gpu/projection", "gpu/product_tile.glsl",
            "        barrier();\n        store(next);", "        store(next);", ("race, write after read: ",), SEQUENCE),
    Control("equal values stored to one shared word", "watched", "gpu/projection", "gpu/projection.comp",
            "atomicOr(has_samples, 1)", "has_samples = 1", ("race, two writes at once: has_samples",), SEQUENCE),
    Control("two 16-bit elements of a word stored without atomics", "watched", "gpu/CELL", "common/store_words.glsl",
            "atomicAnd(buffer[place >> 1], ~(0xFFFFu << shift));",
            "buffer[place >> 1] = buffer[place >> 1] & ~(0xFFFFu << shift);", ("race, ",), SEQUENCE),
    Control("a barrier in a branch", "watched", "gpu/CELL", "gpu/CELL.comp", "        if (r < ROWS && unit < HIDDEN",
            "        if (r > 0) barrier();\n        if (r < ROWS && unit < HIDDEN", ("a barrier in divergent",), SEQUENCE),
    Control("no barrier between two rounds of sums", "watched", "gpu/CELL", "gpu/products.glsl", "        }\n        barrier();\n    }\n}",
            "        }\n    }\n}", ("race, ",), SEQUENCE, is_large=True),
    Control("no barrier before sums take the place of a tile", "watched", "gpu/CELL_stepped", "gpu/exchange.glsl",
            "    if (FIRST_SUM < TILE_VECS) barrier();", "", ("race, ",), STEPPED, is_large=True),
    Control("no bound on a tile's rows", "watched", "gpu/CELL", "gpu/CELL.comp", "if (r < ROWS && unit", "if (unit",
            ("race, ", "out of bounds: ", *_WRONG), SEQUENCE, is_large=True),
    Control("no bound on the units that are stored", "watched", "gpu/CELL_stepped", "gpu/part_step.glsl",
            "finished_row < dispatch.batch && unit < HIDDEN)", "finished_row < dispatch.batch)",
            ("out of bounds: ", *_WRONG), STEPPED),
    Control("copies one element too far", "watched", "copy", "copy.comp", "(results, target,",
            "(results, target + 1,", ("out of bounds: ",)),
    Control("what pads h not zeroed", "watched", "gpu/CELL", "common/time_loop.glsl",
            "if (first || in_shared(slot)) store_state", "if (unit < HIDDEN) store_state", _WRONG, SEQUENCE),
    Control("a row of the initial h not written", "watched", "gpu/begin", "gpu/begin.comp", "if (has_first) state_vecs[start]",
            "if (has_first && row != 1) state_vecs[start]", _WRONG, STEPPED),
    Control("polls without volatile", "weak", "gpu/CELL_persistent", "gpu/persistent.glsl", "POLLED buffer Words", "buffer Words",
            ("parts gave up",), PERSISTENT),
]


def inexact_functions() -> str:
    """Run mode "inexact" with errors a hundred times too large. Returns the mode's report of them, or "" if it has none."""
    results = (modes.inexact(seed, _recurrent(seed, SEQUENCE), {}, scale=100.0) for seed in range(_TRIES))
    return next((text for result in results for text in result.wrong if text.startswith(_WRONG)), "")


def contracted_pairs() -> str:
    """Return "refused float64" if the self-test of float64 fails where sums of pairs of float32 may be fused, else ""."""
    wrong = _mistaken("float64/pairs.glsl", "precise ", "", "float64/elementwise")
    places = (Arithmetic(seed, contracting=0.5) for seed in range(_TRIES))
    return "" if all(modes.passes_float64(some, wrong) for some in places) else "refused float64"


# By name and mode: what is said of a mistake, or nothing
ALL: dict[tuple[str, str], Callable[[], str]] = {
    **{(control.name, control.mode): control.result for control in CONTROLS},
    ("functions a hundred times too inexact", "inexact"): inexact_functions,
    ("pairs of floats that may be contracted", "inexact"): contracted_pairs,
}
