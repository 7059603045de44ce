"""Runs every schedule on the same inputs. Results must be right and have the same bits. Compares times with estimates."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from vkdml import DriverError, InvalidArgumentError, Options, reference
from vkdml_lab.bench.trials import arrays, seconds
from vkdml_lab.gpu.cases import Case
from vkdml_lab.gpu_report.problems import FIVE, OTHERS, QUICK, QUICK_SAMPLES, SAMPLES, WAYS, about
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import (
    GRU,
    LSTM,
    PERSISTENT,
    RNN,
    Cell,
    Gpu,
    GridSync,
    Plan,
    Run,
    Target,
    Trial,
    best,
    grid_sync_test,
    open_device,
    plan_of,
    profile,
    select_device,
)
from vkdml_lab.suite.recording import largest_errors
from vkdml_lab.suite.support import DTYPES, TOLERANCES

RUNS, QUICK_RUNS, LEAST_RUNS = 50, 3, 3
SECONDS = 5.0  # of a schedule; a slow device makes fewer runs
NAN_BYTE = 0xFF  # fills outputs before each run, so that missing writes are noticed
ABSURD = 60  # times the estimate: such a run did something else than estimated
GRID_SYNC = "grid-sync test"
NOTES = """Each schedule of the kernels for GPUs runs `runs` times on the same inputs. `other bits`: runs whose result is not
that of the first run of stepped, bit for bit. `gave up`: runs in which workgroups waited for each other in vain, so that the
fallback ran. `error`: the largest from the float64 reference; `wrong`: outputs beyond the tolerance of their type. `seconds`:
of an execution, its tensors on the device, beside the model's `estimate`. A step is what an execution takes beyond its
projection, divided by T; the projection is measured with a submission of its own, which its estimate has too."""


def steps(job: Job) -> list[Step]:
    gpu = open_device(select_device(None))
    cases, counts = (QUICK, (QUICK_RUNS, QUICK_SAMPLES)) if job.quick else ([*FIVE, *OTHERS], (RUNS, SAMPLES))
    return [*grid_sync_tests(gpu),
            *(Step(case.name, partial(rows, gpu, case, *counts), f"H={case.sizes[-1]}", 15, first=case in [*FIVE, *QUICK])
              for case in cases)]


def summary(found: list[Row]) -> str:
    ran = [row for row in found if row.get("runs")]
    line = f"{len(ran)} schedules of problems, {sum(row['runs'] for row in ran)} runs"
    gave_up = sum(row["gave up"] for row in ran)
    return line + (f", of which {gave_up} gave up" if gave_up else "")


def grid_sync_tests(gpu: Gpu) -> list[Step]:
    """Return a step for each cell that tests whether workgroups can wait for each other, as persistent plans need."""
    def test(cell: Cell) -> Iterator[Row]:
        found: Row = {"not checked": "the test is for GPUs: on a processor no plan waits unless it is forced"}
        if not gpu.info.is_cpu:
            verdict = grid_sync_test(gpu, GridSync(cell, coherent_polls=profile(gpu.info).coherent_polls))
            found = {"passed": verdict.passed, "found": verdict.found}
        yield {"table": "Grid-sync test", "problem": GRID_SYNC, "cell": cell.kernel, "schedule": PERSISTENT, **found}

    return [Step(f"{GRID_SYNC}: {cell.name}", partial(test, cell), like=GRID_SYNC, first=True) for cell in (GRU, LSTM, RNN)]


def rows(gpu: Gpu, case: Case, runs: int, samples: int) -> Iterator[Row]:
    yield from Checked(gpu, case, runs, samples).rows()


class Checked:
    """Runs a problem with each schedule. Results must be right, and have the bits of the first run of the first schedule."""

    def __init__(self, gpu: Gpu, case: Case, runs: int, samples: int) -> None:
        self._gpu, self._case, self._runs, self._samples = gpu, case, runs, samples
        self._problem = case.problem
        self._arrays = arrays(self._problem)
        self._expected: dict[str, np.ndarray] | None = None

    def rows(self) -> Iterator[Row]:
        self._trial = Trial(self._gpu, self._problem, self._arrays)
        for way, options in WAYS.items():
            print(way, flush=True)  # if it hangs, this is its last output
            yield {**about(self._case), "library": "vkdml", "way": "device", "schedule": way, **self._row(options)}

    @property
    def _outputs(self) -> list[str]:
        return [field for field in self._problem.outputs if self._problem.has(field)]

    def _row(self, options: Options) -> Row:
        try:
            target = Target(self._problem, self._gpu.info, options)
            began = time.monotonic()
            row = self._checked(plan_of(target, best(target)))
            if row["gave up"] == row["runs"]:
                return row | {"not checked": "all runs gave up, so that only the fallback ran"}
            of_run = (time.monotonic() - began) / row["runs"]
            row |= timed(self._trial, target, max(LEAST_RUNS, min(self._samples, int(SECONDS / of_run))))
        except InvalidArgumentError as error:
            return {"not checked": f"refused: {error}"}
        except DriverError as error:
            return {"right": False, "failed": str(error)}
        broken = [sentence for sentence, is_so in {
            f"{row['other bits']} of {row['runs']} runs gave other bits than stepped": row["other bits"],
            f"wrong: {row['wrong']} (error {row['error']})": row["wrong"]}.items() if is_so]
        late = row["step us"] / row["step estimate us"] if row["step us"] and not self._gpu.info.is_cpu else 0
        if late >= ABSURD:
            broken.append(f"a step takes {late:.0f} times as long as the model says")
        return row | {"right": not broken} | ({"failed": "; ".join(broken)} if broken else {})

    def _checked(self, plan: Plan) -> Row:
        run, count, other, began = Run(self._trial, plan), 0, 0, time.monotonic()
        while count < LEAST_RUNS or (count < self._runs and time.monotonic() - began < SECONDS):
            found = self._execute(run)
            if self._expected is None:
                self._expected = found
            other += any(found[field].tobytes() != self._expected[field].tobytes() for field in found)
            count += 1
        return {"runs": count, "other bits": other, "gave up": run.timeouts, **self._compared(found)}

    def _execute(self, run: Run) -> dict[str, np.ndarray]:
        for field in self._outputs:
            buffer = self._trial.buffers[field]
            buffer.upload(np.full(buffer.size_in_bytes, NAN_BYTE, np.uint8))
        run.execute()
        return self._trial.outputs()

    def _compared(self, found: dict[str, np.ndarray]) -> Row:
        """Compare outputs with the reference. Returns a row with the largest error and the names of wrong outputs."""
        element = self._problem.element.name
        rtol, atol = TOLERANCES[element]
        expected = reference.run(self._problem, self._arrays)
        errors, wrong = [], []
        for field, array in found.items():
            sizes = self._problem.tensor(field).sizes
            result = array.view(DTYPES[element])[:math.prod(sizes)].reshape(sizes).astype(np.float64)
            errors.append(largest_errors(result, expected[field], element, (rtol, atol))[0])
            if not np.allclose(result, expected[field], rtol, atol):
                wrong.append(field)
        return {"error": None if None in errors else max(filter(None, errors), default=0.0), "wrong": " ".join(wrong)}


def timed(trial: Trial, target: Target, samples: int) -> Row:
    """Time the target's best plan. Returns a row of times and estimates. "phases": how often workgroups wait in a step."""
    problem, tiling, rates = target.problem, best(target), target.profile.rates
    whole = plan_of(target, tiling)
    found = seconds(trial, [whole, projection_alone(whole)], samples)
    taken, projection = (None if isinstance(one, str) else one for one in found)
    projected = tiling.projection_seconds(target, problem.steps) + rates.submission + rates.dispatch
    step = (taken - projection) / problem.steps if taken and projection else None
    return {"seconds": taken, "estimate": tiling.run_seconds(target), "step us": step and step * 1e6,
            "step estimate us": tiling.step_seconds(target) * 1e6, "projection us": projection and projection * 1e6,
            "projection estimate us": projected * 1e6, "phases": problem.loop.phases}


def projection_alone(plan: Plan) -> Plan:
    only = tuple(dispatch for dispatch in plan.execute if "projection" in dispatch.kernel)
    return replace(plan, execute=only, fallback=(), timed_out=None)
