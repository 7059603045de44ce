"""Runs the whole GPU report with --quick on CPU drivers, both as they are and disguised as discrete GPUs."""

import os
import subprocess
import sys
import zipfile

import pytest

from vkdml_lab.bench.peers import SWIFTSHADER
from vkdml_lab.gpu_report.found import FAILED, PASSED, Found
from vkdml_lab.gpu_report.parts import CEILINGS, DEVICES, PARTS, PEERS, SCHEDULES, VALIDATION
from vkdml_lab.gpu_report.problems import QUICK, WAYS

# All Python processes of a report run this as sitecustomize. 4 is VkPhysicalDeviceType's CPU. The load is hidden, so that the
# page draws conclusions from times
DISCRETE = """
import os
from vkdml.engine.vulkan import queries
queries._TYPES[4] = 'discrete'
os.getloadavg = lambda: (0.0, 0.0, 0.0)
"""


def reported(folder, *options, **variables):
    """Run the report with these options and environment variables. Returns a dict from each part to its results, a Found."""
    environment = {**os.environ, "VKDML_LAYER_PATH": str(folder / "no layers"), **variables}
    for name in ("VKDML_TUNING", "VKDML_SELFTEST"):  # as for users; choices go into the folder
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-m", "vkdml", "gpu-report", "--quick", "--output", "report", *options], cwd=folder,
                          env=environment | {"XDG_CACHE_HOME": str(folder / "cache")}, capture_output=True, text=True)
    parts = {part: Found.read(part, folder / "report") for part in PARTS}
    assert done.returncode == any(one.status == FAILED for one in parts.values()), done.stderr
    assert done.stdout == "report: report/report.md; to send it: report.zip\n", done.stderr
    return parts


@pytest.mark.device
@pytest.mark.thorough
def test_on_this_driver(tmp_path):
    """All parts pass on the default driver, except validation, for which this environment has no layer."""
    parts = reported(tmp_path)
    page = (tmp_path / "report" / "report.md").read_text()
    assert {part.name: one.status for part, one in parts.items()} == {
        part.name: PASSED if part != VALIDATION else "not checked" for part in PARTS}, page
    assert "nothing here is about a GPU" in page
    assert "Is it right here? So far, yes" in page
    assert "- validation: validate: no validation layer" in page
    rows = [row for row in parts[SCHEDULES].rows if row.get("way")]
    assert [(row["problem"], row["schedule"]) for row in rows] == [(case.name, way) for case in QUICK for way in WAYS]
    assert all(row["right"] for row in rows if row["schedule"] in ("stepped", "sequence"))
    assert parts[CEILINGS].rows[-1]["gflops"] > 0
    assert list((tmp_path / "report" / "candidates" / "tuning").glob("*/*.json"))
    with zipfile.ZipFile(tmp_path / "report.zip") as archive:
        assert {"report/report.md", *(f"report/{part.name}/{part.name}.md" for part in PARTS)} <= set(archive.namelist())


@pytest.mark.device
@pytest.mark.thorough
@pytest.mark.parametrize("manifest", [None, SWIFTSHADER], ids=["default", "SwiftShader"])
def test_on_a_driver_that_claims_to_be_a_discrete_gpu(tmp_path, manifest):
    """A CPU driver that claims to be a discrete GPU gets an unknown GPU's plans. Results are right; times may be too long."""
    if manifest and not manifest.exists():
        pytest.skip("SwiftShader is not here: make vulkan-extras")
    (tmp_path / "sitecustomize.py").write_text(DISCRETE)
    drivers = {"VK_ICD_FILENAMES": str(manifest), "VK_DRIVER_FILES": str(manifest)} if manifest else {}
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    parts = reported(tmp_path, PYTHONPATH=paths, **drivers)
    page = (tmp_path / "report" / "report.md").read_text()
    facts = {row["fact"]: row["value"] for row in parts[DEVICES].rows}
    assert (facts["type"], facts["row"], facts["tensors are copied"]) == ("discrete", "other GPUs", True)
    assert "What should the table of GPUs say?" in page
    assert "nothing here is about a GPU" not in page
    for row in [*parts[SCHEDULES].rows, *parts[PEERS].rows]:
        assert row.get("right", True) or "times as long as the model says" in row["failed"], row
        assert not row.get("other bits")
    assert all(one.is_done for one in parts.values())
