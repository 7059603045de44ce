"""Tests bench/pictures.py, which draws pictures of a report; here, of a made-up one."""

import pytest

from vkdml_lab.bench import pictures
from vkdml_lab.bench.cases import CASES
from vkdml_lab.bench.peers import CPU, OURS, VULKAN
from vkdml_lab.bench.report import Report


def worker(name, platform, baseline=OURS):
    return {"name": name, "version": "1", "device": "Some GPU", "platform": platform, "baseline": baseline}


WORKERS = [worker(OURS, VULKAN), worker("vkdml-float16", ""), worker("vkdml-other1", VULKAN), worker("some-cpu", CPU),
           worker("webgpu", VULKAN, "vkdml-other1"), worker("iree", VULKAN)]


def row(case, name, way, ms):
    return {"case": case.name, "worker": name, "way": way, "flops": case.flops, "ms": ms, "gflops": case.flops / ms / 1e6}


@pytest.fixture
def report():
    results = [row(case, name, way, 1.0 + place) for case in CASES for place, (name, way) in enumerate(
        [(OURS, "host"), (OURS, "device"), ("some-cpu", "host"), ("webgpu", "host")])]
    return Report(WORKERS, [], results)


def test_all_are_drawn(report, tmp_path):
    pictures.draw(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"throughput.png", "throughput-cpu.png"}


def test_without_results_of_ours_there_is_nothing_to_show(report, tmp_path):
    others = [row for row in report.results if row["worker"] != OURS]
    pictures.draw(Report(WORKERS[3:], [], [*others, {"case": "any", "worker": OURS, "error": "crashed"}]), tmp_path)
    assert not list(tmp_path.iterdir())


def test_they_are_called_so_in_the_pictures(report, tmp_path, monkeypatch):
    labels = {}

    def noted(figure, path):
        labels[path.stem] = {label.get_text() for axes in figure.axes for label in axes.get_yticklabels()}

    monkeypatch.setattr(pictures, "save", noted)
    pictures.draw(report, tmp_path)
    assert {OURS, "vkdml, Some", "iree"} <= labels["throughput"]
    assert "vkdml-other1" not in labels["throughput"]
    assert "webgpu, Some" in labels["throughput"]  # it ran on the device of the vkdml that it is compared with
