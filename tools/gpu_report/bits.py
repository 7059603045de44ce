"""Every schedule on the same inputs, again and again: all results must have the same bits, and be right."""

from __future__ import annotations

import time

import numpy as np

from bench.trials import arrays
from tests.recording import largest_errors
from tests.support import DTYPES, TOLERANCES
from tools.gpu.cases import Case
from tools.gpu_report.outcome import Job, Outcome, Row, announced, judged, write
from tools.gpu_report.problems import BITS, QUICK_BITS, WAYS
from vkdml import DriverError, InvalidArgumentError, reference
from vkdml.laboratory import Commands, Gpu, Run, Trial, open_device, plan, select_device

RUNS, QUICK_RUNS = 200, 3
NAN_BYTE = 0xFF  # outputs are filled with it before each run, so that what is not written is seen
NOTES = """Each schedule of the kernels for GPUs runs `runs` times on the same inputs. `other bits`: runs whose result is not
that of the first run of stepped, bit for bit. `gave up`: runs in which workgroups waited for each other in vain, so that the
fallback ran. `error`: the largest from the float64 reference; `wrong`: outputs beyond the tolerance of their type; `refused`:
why it cannot run so."""


def run(job: Job) -> Outcome:
    gpu = open_device(select_device(None))
    rows: list[Row] = []
    for case in announced(QUICK_BITS if job.quick else BITS):
        rows += Checked(gpu, case, QUICK_RUNS if job.quick else RUNS).rows()
        write(job.folder, "bits", "Every schedule, bit for bit", NOTES, {"Results": rows})  # now, in case the next one hangs
    return judged(summary(rows), [sentence for row in rows for sentence in broken(row)])


def summary(rows: list[Row]) -> str:
    """A line about all rows. Where every run gave up, only the fallback was checked."""
    ran = [row for row in rows if row["runs"]]
    unchecked = sum(row["gave up"] == row["runs"] for row in ran)
    line = f"{len(ran)} schedules of problems, {sum(row['runs'] for row in ran)} runs"
    if any(row["gave up"] for row in ran):
        line += f", of which {sum(row['gave up'] for row in ran)} gave up"
    return line + (f"; in {unchecked} all runs gave up, so that only their fallback is checked" if unchecked else "")


def broken(row: Row) -> list[str]:
    """What is wrong with a row, in sentences."""
    name = f"{row['problem']} {row['way']}"
    found = {f"{row['other bits']} of {row['runs']} runs gave other bits than stepped": row["other bits"],
             f"wrong: {row['wrong']} (error {row['error']})": row["wrong"], row["failed"]: row["failed"]}
    return [f"{name}: {sentence}" for sentence, is_so in found.items() if is_so]


class Checked:
    """A problem with its inputs on the device. The first schedule that runs says which bits the others must have."""

    def __init__(self, gpu: Gpu, case: Case, runs: int) -> None:
        self._gpu, self._case, self._runs = gpu, case, runs
        self._problem = case.problem
        self._arrays = arrays(self._problem)
        self._expected: dict[str, np.ndarray] | None = None

    def rows(self) -> list[Row]:
        self._trial = Trial(self._gpu, self._problem, self._arrays)
        self._clear = Commands(self._gpu)
        for field in self._outputs:
            self._clear.upload(self._trial.buffers[field])
        return [self._row(way) for way in WAYS]

    @property
    def _outputs(self) -> list[str]:
        return [field for field in self._problem.outputs if self._problem.has(field)]

    def _row(self, way: str) -> Row:
        row: Row = {"problem": self._case.name, "way": way, "runs": 0, "other bits": 0, "gave up": 0, "error": None,
                    "wrong": "", "refused": "", "failed": "", "s": 0.0}
        started = time.perf_counter()
        try:
            one = Run(self._trial, plan(self._problem, self._gpu.info, WAYS[way]))
            for _ in range(self._runs):
                found = self._execute(one)
                row["runs"] += 1
                row["gave up"] = one.timeouts
                if self._expected is None:
                    self._expected = found
                row["other bits"] += any(found[field].tobytes() != self._expected[field].tobytes() for field in found)
            row |= self._compared(found)
        except InvalidArgumentError as error:
            row["refused"] = str(error)
        except DriverError as error:
            row["failed"] = str(error)
        row["s"] = time.perf_counter() - started
        return row

    def _execute(self, one: Run) -> dict[str, np.ndarray]:
        for field in self._outputs:
            buffer = self._trial.buffers[field]
            buffer.write(np.full(buffer.size_in_bytes, NAN_BYTE, np.uint8))
        self._clear.execute()
        one.execute()
        return self._trial.outputs()

    def _compared(self, found: dict[str, np.ndarray]) -> Row:
        """Largest error against the reference, and the fields that are wrong."""
        element = self._problem.element.name
        rtol, atol = TOLERANCES[element]
        expected = reference.run(self._problem, self._arrays)
        errors, wrong = [], []
        for field, array in found.items():
            sizes = self._problem.tensor(field).sizes
            result = array.view(DTYPES[element])[:int(np.prod(sizes))].reshape(sizes).astype(np.float64)
            errors.append(largest_errors(result, expected[field], element, (rtol, atol))[0])
            if not np.allclose(result, expected[field], rtol, atol):
                wrong.append(field)
        return {"error": None if None in errors else max(filter(None, errors), default=0.0), "wrong": " ".join(wrong)}
