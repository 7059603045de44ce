"""Tests gpu_report/fit.py, which finds a GPU's figures (such as latencies) from times; here, from the cost model's times."""

import json
import shutil
from dataclasses import asdict

import pytest

from vkdml.planning import gpus
from vkdml_lab.bench import reports
from vkdml_lab.gpu.cases import Case
from vkdml_lab.gpu_report import model
from vkdml_lab.gpu_report.fit import APART, FIGURES, NOTHING, Run, fit, with_figures
from vkdml_lab.gpu_report.problems import FIVE, WAYS, about
from vkdml_lab.suite.devices import DEVICES, GPUS

CASES = [*FIVE, *(Case("gru", (200, 1, hidden, hidden), True) for hidden in (128, 512, 1024)), Case("gru", (24, 3, 70, 100), True, 2, True)]
TRUE = {"seen": 2.2, "dispatch": 0.4, "latency": 1.7, "cache_rate": 0.6, "clock": 0.8}  # factors of the table's figures
INFO = GPUS["RTX 3090"]


def made_up(info=INFO, ways=WAYS, true=TRUE):
    rows = [{**about(case), "schedule": way, "seconds": 1.0, "right": True, "gave up": 0} for case in CASES for way in ways]
    for row in rows:
        if run := Run.of(row, info):
            row["seconds"] = run.tiling.run_seconds(with_figures(run.target, true))
    return rows


@pytest.mark.parametrize("name", ["RTX 3090", "RX 7900 XTX", "A770"])
def test_other_figures_are_found_again(name):
    """The fit finds the figures that the times were computed with, which differ from those in the table of GPUs."""
    found = fit(made_up(GPUS[name]), GPUS[name])
    times = {change.figure: change.after / change.before for change in found.changes if change.after}
    assert {figure: times[figure] for figure in TRUE} == pytest.approx(TRUE, rel=0.02)
    assert times.get("submission", 1) == pytest.approx(1, rel=0.02)
    assert found.runs == len(CASES) * len(WAYS)
    assert found.off_before > 1.2
    assert found.off_after < 1.01


def test_what_is_to_be_pasted():
    found = fit(made_up(), INFO)
    rates, calls = found.lines
    table = {"GPUS": {"RTX 3090": gpus.GPUS["RTX 3090"]}, "replace": gpus.replace}
    exec(rates, table)
    assert table["GPUS"]["RTX 3090"].seen == pytest.approx(2.2 * gpus.GPUS["RTX 3090"].seen, rel=0.02)
    assert calls.startswith("rates=replace(_GPU.rates, dispatch=8e-07")
    assert calls.endswith('# "NVIDIA"')


def test_nothing_persistent():
    """Without times of persistent plans, only the figure `seen` (the latency between workgroups) cannot be fitted."""
    found = fit(made_up(ways=["stepped", "sequence"]), INFO)
    assert {change.figure: change.reason for change in found.changes if change.reason == NOTHING} == {"seen": NOTHING}
    dispatch = next(change for change in found.changes if change.figure == "dispatch")
    assert dispatch.after / dispatch.before == pytest.approx(TRUE["dispatch"], rel=0.1)


def test_figures_that_one_run_does_not_tell_apart():
    """The fit to a single time, which depends on several figures, changes one of them and calls the others unknown."""
    changes = fit(made_up(ways=["persistent"])[:1], INFO).changes
    assert sum(change.after is not None for change in changes) == 1
    assert {change.reason for change in changes if change.after is None} == {APART}


@pytest.mark.parametrize("changes", [{"gave up": 3}, {"right": False}, {"seconds": None}])
def test_runs_that_say_nothing(changes):
    found = fit([row | changes for row in made_up()], INFO)
    assert found.runs == 0
    assert {change.reason for change in found.changes} == {NOTHING}
    assert found.lines == []


def test_a_driver_on_the_processor_is_no_gpu():
    assert fit(made_up(), DEVICES["llvmpipe"]).runs == 0


def test_a_gpu_that_no_row_is_like():
    """The fit for an unknown GPU gives a line of Python that adds a row for this GPU to the table."""
    info = gpus.replace(INFO, name="New GPU", vendor=0)
    assert fit(made_up(info), info).lines[0].startswith('GPUS["New GPU"] = replace(GPUS["unknown"], seen=')


def test_what_the_first_page_says():
    (said,) = model.figures(INFO, made_up(ways=["persistent"]))
    assert 'say?** `GPUS["RTX 3090"] = replace(GPUS["RTX 3090"], seen=' in said
    assert "Not fitted: " in said
    assert model.figures(DEVICES["llvmpipe"], made_up()) == []


# bench.reports

def report(folder, info, schedules, peers=()):
    for part, rows in (("devices", [{"table": "Device", "fact": name, "value": value} for name, value in asdict(info).items()]),
                       ("schedules", schedules), ("peers", peers)):
        (folder / part).mkdir(parents=True)
        (folder / part / "results.jsonl").write_text("\n".join(json.dumps({"part": part, **row}) for row in rows) + "\n{\"cut sh")
    return folder


def test_several_reports(tmp_path, capsys):
    """bench.reports prints a table with a column for each of three reports (one in an archive), and figures of two GPUs."""
    sizes = about(FIVE[-1])
    peers = [{**sizes, "library": library, "way": way, "seconds": seconds, "right": True} for library, way, seconds in (
        ("vkdml", "host", 1e-3), ("vkdml", "device", 5e-4), ("onnxruntime-cpu", "host", 3e-3))]
    peers.append({"table": "Copies", "bytes": 9, "copy": "readback", "seconds": 1.0, "GB/s": 2.0, "right": True})
    report(tmp_path / "one", INFO, made_up(), peers)
    report(tmp_path / "two", INFO, made_up()[:3])
    report(tmp_path / "three", GPUS["RX 7900 XTX"], [{"not checked": "refused"}])
    archive = shutil.make_archive(str(tmp_path / "three"), "zip", tmp_path, "three")
    assert reports.main([str(tmp_path / "one"), str(tmp_path / "two"), archive]) == 0
    text = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    cells = {name: values for name, *values in lines}
    assert cells["report"] == ["three.zip", "one", "two"]
    assert cells["right"] == ["0 of 0", "30 of 30", "3 of 3"]
    assert cells["gru-50x64x512x512 ms"] == ["", "0.5", ""]
    assert cells["gru-50x64x512x512, times of onnxruntime-cpu"] == ["", "3", ""]
    assert cells["readback GB/s"] == ["", "2", ""]
    amd, nvidia = text.split("\n## ")[1:]
    assert "Nothing could be fitted." in amd
    assert amd.count(NOTHING) == len(FIGURES)
    assert "in 30 runs" in nvidia
    assert 'GPUS["RTX 3090"] = replace(GPUS["RTX 3090"], seen=9.9' in nvidia


def test_what_is_no_report(tmp_path):
    with pytest.raises(SystemExit, match="has no facts about a device"):
        reports.main([str(tmp_path)])
    with pytest.raises(SystemExit, match="cannot be read"):
        reports.main([str(tmp_path / "none.zip")])
