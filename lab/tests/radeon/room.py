"""Runs persistent plans, whose workgroups wait for each other, on a GPU with room for all workgroups, or for all but one.

vkdml radeon python -m lab.tests.radeon.room
"""

from __future__ import annotations

from vkdml import Device, Options
from vkdml_lab.internals import (
    FLOAT32,
    GRU,
    LSTM,
    PERSISTENT,
    Run,
    Trial,
    differences,
    from_desc,
    plan,
    random_memory,
)
from vkdml_lab.radeon import process
from vkdml_lab.suite.support import make_desc


def main() -> None:
    """Check that results are right, and that plans give up waiting if and only if room is missing. Raises AssertionError."""
    gpu = Device().gpu
    for cell in (GRU, LSTM):  # one tile of rows, so that all workgroups wait for each other
        problem = from_desc(make_desc(cell, 6, 4, 16, 128, 1, FLOAT32.data_type))
        planned = plan(problem, gpu.info, Options(schedule=PERSISTENT, workgroup=128, rows=4))
        assert planned.tiling
        needed = planned.tiling.loop.workgroups
        for resident in (needed, needed - 1):
            process.change(resident=resident)
            memory = random_memory(problem)
            trial = Trial(gpu, problem, memory)
            run = Run(trial, planned)
            run.execute()
            assert not differences(problem, {**memory, **trial.outputs()})
            assert bool(run.timeouts) == (resident < needed)
            print(f"{cell.name}: {needed} workgroups, room for {resident}: "
                  f"{'gave up, and the fallback was right' if run.timeouts else 'right'}", flush=True)


if __name__ == "__main__":
    main()
