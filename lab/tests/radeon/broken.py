"""Breaks one instruction of the emulated GPU at a time. If a problem's results become wrong, the self-test must fail.

vkdml radeon python -m lab.tests.radeon.broken [--cases NAME ...]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter, defaultdict
from typing import Any

from vkdml import Device, Options, VerificationError
from vkdml.errors import VkdmlError
from vkdml_lab.internals import (
    ELEMENT_TYPES,
    FLOAT32,
    FLOAT64,
    LSTM,
    PERSISTENT,
    RNN,
    SEQUENCE,
    STEPPED,
    Gpu,
    Problem,
    plan,
    plan_plain,
    self_test,
    with_sequence,
)
from vkdml_lab.radeon import process
from vkdml_lab.radeon.instructions import NAMES
from vkdml_lab.suite.devices import make_problem

_WITHOUT_RESULT = {"nothing", "v_nop", "s_endpgm", "s_barrier", "buffer_gl0_inv", "buffer_gl1_inv"}  # and waits
FLOAT16 = next(element for element in ELEMENT_TYPES if element.name == "float16")

# Usual problems and how they run. The recurrent ones have several tiles of rows and more steps than the self-test's
CASES: dict[str, tuple[Any, Options]] = {
    "GRU sequence": (make_problem(9, 13, 24, 48), Options(schedule=SEQUENCE, rows=4)),
    "GRU persistent": (make_problem(9, 13, 16, 64), Options(schedule=PERSISTENT, workgroup=128, rows=4)),
    "LSTM persistent, without its sequence": (make_problem(9, 5, 16, 64, cell=LSTM, element=FLOAT16, OutputSequenceTensor=None),
                                              Options(schedule=PERSISTENT, workgroup=128, rows=2)),
    "RNN stepped, both directions": (make_problem(9, 3, 8, 128, 2, cell=RNN, element=FLOAT16), Options(schedule=STEPPED)),
    "LSTM in float64": (make_problem(7, 3, 8, 16, cell=LSTM, element=FLOAT64), Options()),
    **{kind: (self_test.problem_of(kind, FLOAT32), Options()) for kind in ("activation", "arithmetic", "GEMM", "cast")},
    **{kind: (self_test.problem_of(kind, FLOAT16), Options()) for kind in ("copy", "gather")},
}


def counts() -> Counter[int]:
    """Return how often each instruction has run so far. Keys are the instructions' numbers in the emulator."""
    found: Counter[int] = Counter()
    for program in process.programs():
        for n in range(program.count):
            found[program.instructions[n].op] += program.instructions[n].runs
    return found


def spoiled(gpu: Gpu, samples: Any) -> bool:
    """Return whether the self-test's samples give wrong results or an error. samples: pairs of a problem and its plan."""
    try:
        return bool(self_test._wrong(gpu, samples))
    except VkdmlError:
        return True


def is_seen(gpu: Gpu, problem: Any, planned: Any, options: Options) -> bool:
    """Return whether the self-test refuses the problem's kernels. The test's earlier results are discarded, so that it runs again."""
    gpu.once_cache.pop(self_test.check, None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            self_test.check(gpu, problem, planned, options)
        except VerificationError:
            return True
    return False


def main() -> int:
    """Print a line for each case. Returns 1 if the self-test passed although a broken instruction made results wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    gpu, shown = Device().gpu, defaultdict[str, set[str]](set)
    process.change(budget=400_000)
    for name in arguments.cases:
        problem, options = CASES[name]
        wholes = [with_sequence(problem), problem] if isinstance(problem, Problem) else [problem]
        samples = [(one, plan(one, gpu.info, options) if isinstance(one, Problem) else plan_plain(one, gpu.info)) for one in wholes]
        planned = samples[-1][1]
        assert not is_seen(gpu, problem, planned, options)
        before = counts()
        assert not spoiled(gpu, samples)
        found = defaultdict[str, list[str]](list)
        for op in sorted(op for op in (counts() - before) if NAMES[op] not in _WITHOUT_RESULT and "wait" not in NAMES[op]):
            process.change(broken=op)
            how = "harmless" if not spoiled(gpu, samples) else "seen" if is_seen(gpu, problem, planned, options) else "not seen"
            process.change(broken=-1)
            process.found()
            found[how].append(NAMES[op])
            shown[how].add(NAMES[op])
        print(f"{name}: {', '.join(f'{len(ops)} {how}' for how, ops in found.items())}; harmless: {' '.join(found['harmless'])}; "
              f"not seen: {' '.join(found['not seen'])}", flush=True)
    print(f"{len(set().union(*shown.values()))} instructions: {len(shown['seen'])} spoil a problem and are seen, "
          f"{len(shown['not seen'])} are not, {len(shown['harmless'] - shown['seen'])} spoil none")
    return int(bool(shown["not seen"]))


if __name__ == "__main__":
    raise SystemExit(main())
