"""Lists the problems that parts of the report run, and the schedules that the parts compare."""

from __future__ import annotations

from typing import Any

from vkdml import Options
from vkdml_lab.gpu.cases import KINDS, Case

SAMPLES, QUICK_SAMPLES = 25, 3  # of each time

# GPU schedules, which a CPU driver runs, too, without lanes. Results are compared with those of the first
WAYS = {
    "stepped": Options(schedule="stepped", lanes=False),
    "sequence": Options(schedule="sequence", lanes=False),
    "persistent": Options(schedule="persistent", lanes=False),
}

# Run first: few and many rows, weights that fit a GPU's registers and those that do not
FIVE = [Case("gru", (100, 1, 256, 256)), Case("gru", (100, 1, 1024, 1024)), Case("lstm", (100, 1, 256, 256)),
        Case("gru", (50, 16, 512, 512)), Case("gru", (50, 64, 512, 512))]

_STEPS = 24
_SHAPES = [*((1, width) for width in (128, 256, 512, 1024)), (16, 256), (16, 1024), (64, 512)]  # B, H

OTHERS = [
    Case("gru", (5000, 1, 64, 256)),  # many waits
    *(Case("gru", (200, 1, hidden, hidden), two_phases) for two_phases in (False, True) for hidden in (128, 512, 1024)),
    Case("lstm", (200, 1, 1024, 1024)), Case("gru", (50, 16, 1024, 1024)), Case("gru", (25, 64, 1024, 1024)),
    Case("gru", (200, 1, 1024, 1024), element="float16"), Case("gru", (50, 64, 512, 512), element="float16"),
    Case("gru", (_STEPS, 16, 64, 256), directions=2),
    Case("gru", (_STEPS, 16, 64, 256), ragged=True),
    Case("gru", (_STEPS, 3, 70, 100), True, directions=2, ragged=True),  # sizes that no tile divides
    *(Case(cell, (_STEPS, batch, 64, hidden), two_phases, element=element)
      for element in ("float32", "float16") for batch, hidden in _SHAPES for cell, two_phases in KINDS),
]
QUICK = [Case("gru", (4, 2, 16, 64), True), Case("lstm", (4, 2, 16, 64), element="float16")]

CANDIDATES = [
    *(Case("gru", sizes) for sizes in ((100, 1, 128, 128), (100, 1, 256, 256), (100, 1, 512, 512), (100, 1, 1024, 1024),
                                       (50, 4, 512, 512), (50, 16, 1024, 1024), (50, 32, 256, 256), (50, 64, 512, 512),
                                       (25, 64, 1024, 1024), (1000, 1, 128, 128))),
    Case("gru", (100, 1, 512, 512), True), Case("gru", (50, 64, 512, 512), True),
    Case("lstm", (100, 1, 256, 256)), Case("lstm", (50, 64, 512, 512)), Case("rnn", (100, 1, 512, 512)),
    Case("gru", (100, 16, 256, 256), directions=2), Case("gru", (50, 64, 512, 512), element="float16"),
]
QUICK_CANDIDATES = [Case("gru", (4, 2, 16, 64))]


def about(case: Case) -> dict[str, Any]:
    """Return the columns of a result row that describe the case: its name, sizes, cell and element type."""
    return {"problem": case.name, **dict(zip("TBIH", case.sizes)), "cell": case.cell, "type": case.element}
