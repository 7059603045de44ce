"""lab/vkdml_lab/gpu/executed.py with made-up counts of a small kernel."""

from dataclasses import replace

import numpy as np
import pytest

from lab.tests.test_gpu_assembly import AMD, ELEMENT, PASSED_OVER
from lab.tests.test_gpu_model import GPU
from vkdml.planning.dispatches import Dispatch
from vkdml_lab.gpu import executed
from vkdml_lab.gpu.assembly import LOAD, parse
from vkdml_lab.gpu.cases import Case
from vkdml_lab.gpu.compiler import Pipeline
from vkdml_lab.gpu.executed import compare, names_of, taken
from vkdml_lab.gpu.loops import loops, of_products
from vkdml_lab.gpu.measure import DEFAULT, PERSISTENT, SEQUENCE, Part
from vkdml_lab.gpu.model import estimate
from vkdml_lab.gpu.steps import LoopStep

SUBGROUPS, LOOKS, TRIPS = 4, 3, 10
PIPELINE = Pipeline("gpu/gru_persistent", 1.0, "", 32, {"subgroups": 16}, True, AMD)
STEP = LoopStep(True, (TRIPS,))
PART = Part(GPU, Case("gru", (5, 1, 64, 64)), PERSISTENT, Dispatch("gpu/gru_persistent", {"WORKGROUP": 64}, {}, (), (2, 1, 1)), PIPELINE,
            STEP, estimate(GPU, PIPELINE, STEP, 2, 64, 0.0))


def counted(assembly=AMD, **changes):
    """Return counts as the model expects, after polls that found nothing. changes: other runs, by text of an instruction."""
    blocks = parse(assembly)
    times = {id(one): runs * (LOOKS if waits else 1) for one, runs, waits in taken(of_products(loops(blocks)), STEP.trips)}
    names, rows = [], []
    for one in [one for block in blocks for one in block.instructions]:
        runs = SUBGROUPS * next((of for part, of in changes.items() if part in one.text), times.get(id(one), 0))
        waits = [runs * (LOAD in one.waits), runs * ("lgkmcnt" in one.text)]
        names += names_of(one)
        rows += [[runs, 32 * one.size * runs, 128 * runs * (one.kind == LOAD), *waits, *(5 * count for count in waits)]] * len(names_of(one))
    return {tuple(names): np.array(rows)}


def test_what_was_counted_beside_the_model():
    row = compare(PART, counted())
    # BB1, BB4, and ten times BB3, in which one instruction is two
    assert row["instructions"] == f"{4 + 7 * TRIPS} / {4 + 7 * TRIPS}"
    assert row["scalars"] == f"{3 + 2 * TRIPS} / {3 + 2 * TRIPS}"
    assert row["loads"] == row["from shared"] == f"{TRIPS} / {TRIPS}"
    assert row["bytes"] == row["bytes from shared"] == f"{16 * 32 * TRIPS} / {16 * 32 * TRIPS}"
    assert row["past a cache"] == f"{128 * TRIPS}"
    assert row["waits for memory"] == f"{TRIPS + 1} / {TRIPS + 1}"
    assert row["for others"] == "0 / 0", "what comes from memory takes longer"
    assert (row["looks"], row["of looks"], row["do not run"]) == (f"{LOOKS}", f"{4 * LOOKS} / 4", "0")


def test_what_some_subgroups_pass_over():
    """Counts, and the model's figures for some invocations, are averages of a workgroup's subgroups."""
    pipeline, step = replace(PIPELINE, assembly=PASSED_OVER), replace(STEP, summing=1.0, finishing=0.25)
    part = replace(PART, pipeline=pipeline, step=step, estimate=estimate(GPU, pipeline, step, 2, 64, 0.0))
    row = compare(part, counted(PASSED_OVER, **{ELEMENT: 0.5, "ds_load_b64 v[2:3]": 0.5}))
    assert row["instructions"] == f"{9 + 7 * TRIPS} / {9 + 7 * TRIPS}"
    assert row["from shared"] == f"{TRIPS + 1.5} / {TRIPS + 1.5}"


def test_what_does_not_run():
    row = compare(PART, counted(v_add_f32=0))
    assert row["instructions"] == f"{3 + 7 * TRIPS} / {4 + 7 * TRIPS}"
    assert row["do not run"] == "1"


def test_a_program_that_did_not_run():
    with pytest.raises(LookupError, match="did not run"):
        compare(PART, {("s_endpgm",): np.zeros((1, 7))})


@pytest.mark.parametrize("error", [RuntimeError("no driver"), LookupError("its program did not run"), ValueError("an unknown instruction")])
def test_plans_that_cannot_be_counted_lose_no_other(monkeypatch, error):
    def of_plan(drivers, case, name):
        if name == PERSISTENT:
            raise error
        return [{"plan": name}]

    monkeypatch.setattr(executed, "_rows", of_plan)
    case = Case("gru", (5, 1, 64, 64))
    assert list(executed.rows("", [(case, SEQUENCE), (case, PERSISTENT), (case, DEFAULT)])) == [
        {"plan": SEQUENCE}, f"gru-5x1x64x64 persistent: its steps could not be counted: {error}", {"plan": DEFAULT}]
