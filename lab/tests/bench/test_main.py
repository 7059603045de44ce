"""Tests `python -m bench`: its report, and libraries that crash, refuse a case or are missing."""

import json

import pytest

from lab.tests.bench.support import TINY, misbehaving, table
from vkdml_lab.bench import __main__ as bench
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.peers import OURS, Peer, devices

pytestmark = pytest.mark.device


def run(tmp_path, wanted, cases=(TINY,)):
    chosen = bench.parse(["--output", str(tmp_path), "--samples", "2", "--cases", "named"])
    bench.measure_chosen(cases, wanted, devices()[0], chosen)
    return json.loads((tmp_path / "results.json").read_text()), (tmp_path / "report.md").read_text()


def test_a_report(tmp_path):
    results, text = run(tmp_path, [table()[OURS], table()["onnxruntime-cpu"]])
    assert [(row["case"], row["worker"], row["way"]) for row in results["results"]] == [
        ("gru-3x2x4x8", "vkdml", "host"), ("gru-3x2x4x8", "vkdml", "device"), ("gru-3x2x4x8", "onnxruntime-cpu", "host")]
    for row in results["results"]:
        assert not row["error"]
        assert row["n"] == len(row["seconds"]) == 2
        assert row["flops"] == 2 * 3 * 2 * 3 * 8 * (4 + 8)
        assert row["ms"] > 0
        assert row["gflops"] > 0
        assert row["spread"] >= 0
        assert row["difference"] < 1e-5
    assert results["results"][2]["baseline"] == "vkdml"
    assert results["results"][2]["times"] > 0
    assert [worker["name"] for worker in results["workers"]] == ["vkdml", "onnxruntime-cpu"]
    assert "validation layers off" in text
    assert "| gru-3x2x4x8 | onnxruntime-cpu |" in text


@pytest.mark.thorough
def test_a_worker_that_crashes_is_reported_and_started_again(tmp_path):
    other = Case("gru", 2, 2, 4, 8)
    results, text = run(tmp_path, [misbehaving("crash"), misbehaving("refuse"), table()["onnxruntime-cpu"]], [TINY, other])
    errors = {(row["case"], row["worker"]): row["error"] for row in results["results"]}
    assert "crashed: SIGABRT" in errors[TINY.name, "crash"]
    assert errors[TINY.name, "refuse"] == "ValueError: three steps\nare too many"
    assert "ValueError: three steps are too many" in text
    assert errors[other.name, "crash"] == errors[other.name, "refuse"] == ""
    assert errors[TINY.name, "onnxruntime-cpu"] == errors[other.name, "onnxruntime-cpu"] == ""


def test_what_is_missing_is_said_to_be(tmp_path):
    absent = Peer("absent", "absent", install="pip install absent")
    results, text = run(tmp_path, [absent, misbehaving("unavailable"), table()["onnxruntime-cpu"]])
    assert [(row["name"], row["reason"]) for row in results["missing"]] == [
        ("absent", "No module named 'vkdml_lab.bench.adapters.absent'"), ("unavailable", "no such device")]
    assert "pip install absent" in text
    assert [row["worker"] for row in results["results"]] == ["onnxruntime-cpu"]


def test_only_named_cases_are_measured():
    """--cases turns off growth, ceilings and first results, except what another option, such as --ceilings, turns on."""
    parts = ("growth", "ceilings", "first_result")
    assert [getattr(bench.parse([]), part) for part in parts] == [True, True, True]
    assert [getattr(bench.parse(["--cases", "gru", "--ceilings"]), part) for part in parts] == [False, True, False]


def test_a_device_that_is_not_there():
    with pytest.raises(SystemExit, match="bench: no Vulkan device 'none of these'"):
        bench.main(["--device", "none of these"])


def test_names_that_are_not_there(capsys):
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--cases", "gru"])
    assert "no gru; there are gru-1x1x64x64" in capsys.readouterr().err
