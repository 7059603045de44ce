"""The pictures, of a report that is made up."""

import pytest
from matplotlib.text import Text

from vkdml_lab.bench import pictures
from vkdml_lab.bench.cases import CASES, GROWTH
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
    growth = {dimension: [row(case, name, "host", 1.0) for case in cases for name in (OURS, "iree")] for dimension, cases in GROWTH.items()}
    ceilings = {"gflops": 100.0, "read_gb_s": {"1024": 10.0, "4096": 12.0}, "submission_us": 50.0}
    return Report(WORKERS, [], results, ceilings, {}, growth)


def test_all_are_drawn(report, tmp_path):
    pictures.draw(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"throughput.png", "throughput-cpu.png", "roofline.png", *(f"growth-{name}.png" for name in "TBH")}


def test_without_results_of_ours_there_is_nothing_to_show(report, tmp_path):
    others = [row for row in report.results if row["worker"] != OURS]
    pictures.draw(Report(WORKERS[3:], [], [*others, {"case": "any", "worker": OURS, "error": "crashed"}], report.ceilings), tmp_path)
    assert not list(tmp_path.iterdir())


def test_they_are_called_so_in_the_pictures(report, tmp_path, monkeypatch):
    labels = {}

    def noted(figure, path):
        texts = [label for axes in figure.axes for label in (*axes.get_yticklabels(), *(axes.get_legend() or axes).findobj(Text))]
        labels[path.stem] = {text.get_text() for text in texts}

    growth = {"T": [*report.growth["T"], *({**row, "worker": "vkdml-other1"} for row in report.growth["T"])]}
    monkeypatch.setattr(pictures, "save", noted)
    pictures.draw(Report(WORKERS, [], report.results, report.ceilings, {}, growth), tmp_path)
    for picture in ("throughput", "growth-T"):
        assert {OURS, "vkdml, Some", "iree"} <= labels[picture]
        assert "vkdml-other1" not in labels[picture]
    assert "webgpu, Some" in labels["throughput"]  # it ran where the vkdml ran that it is compared with
