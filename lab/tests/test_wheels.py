"""Tests the wheels: vkdml's wheel contains only vkdml, and the laboratory's works without the checkout."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tools import compile_shaders
from vkdml_lab.bench import ceilings

ROOT = Path(__file__).resolve().parents[2]
FROM_THE_CHECKOUT = {"controls.py", "house.py"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Build both wheels from a copy, as build folders may contain modules that are gone. Returns the wheels' paths."""
    folder = tmp_path_factory.mktemp("wheels")
    tree = shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "*-report"))
    for project in (tree, tree / "lab"):
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, project], check=True)
    return [next(folder.glob(f"{name}-*.whl")) for name in ("vkdml", "vkdml_lab")]


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


def test_ceilings_are_compiled_with_what_they_try(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "lab"))
    build_ceilings = pytest.importorskip("build_ceilings", reason="needs setuptools")
    assert ceilings.ALL.chains == build_ceilings.CHAINS
    assert set(ceilings.QUICK.chains) <= set(build_ceilings.CHAINS)
    assert {name for name, _ in build_ceilings.VARIANTS.values()} == {path.stem for path in ceilings.SHADERS.glob("*.comp")}


@pytest.mark.thorough
def test_the_wheel_of_vkdml_has_nothing_else(wheels):
    names = contents(wheels[0])
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert {name for name in names if name.endswith(".spv")} == {f"vkdml/spirv/{kernel}.spv" for kernel in compile_shaders.kernels()}
    others = {re.sub(r"\.[\w-]+\.so$", ".so", re.sub(r"^vkdml/spirv/[\w/]+\.spv$", "kernel", name)) for name in names - modules}
    assert others == {"kernel", "vkdml/spirv/checksums.txt", "vkdml/py.typed", "vkdml/engine/vulkan/_kp.so", "vkdml/engine/vulkan/_kp.pyi",
                      "vkdml/faces/onnx/_provider.so"}


def test_the_laboratory_imports_nothing_from_the_checkout():
    """Modules of the laboratory's wheel, except controls.py, import nothing from the checkout's tests, tools, bench and lab."""
    for path in (ROOT / "lab/vkdml_lab").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and path.name not in FROM_THE_CHECKOUT:
                assert (node.module or "").split(".")[0] not in ("tests", "tools", "bench", "lab"), path


@pytest.mark.device
@pytest.mark.thorough
def test_a_wheel_runs_the_suite(wheels, tmp_path):
    """The installed wheels run the suite and the GPU report in an environment without the checkout."""
    venv.create(tmp_path / "venv", with_pip=False)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", packages, *wheels], check=True)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [tmp_path / "venv" / "bin" / "python", "-m", "vkdml", "conformance", "--quick", "--only", "test_shape", "--json"]
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (run, *_) = json.loads(done.stdout)["runs"]
    assert run["about"]["chosen"] == {"only": ["test_shape"], "quick": True, "long": False, "seed": 0}
    assert {test["outcome"] for test in run["tests"]} <= {"passed", "skipped"}
    assert run["tests"][0]["records"][0]["fraction"] < 1
    assert {path.name for path in (tmp_path / "conformance-report").iterdir()} >= {"conformance.md", "conformance.json", "results-0.jsonl"}
    again = [*command[:3], "reproduce", run["tests"][0]["test"]]
    assert subprocess.run(again, cwd=tmp_path, env=outside).returncode == 0

    (tmp_path / "none").mkdir()  # no compiler or other program is found
    command = [tmp_path / "venv" / "bin" / "python", "-m", "vkdml", "gpu-report", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=outside | {"PATH": str(tmp_path / "none")}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "gpu-report" / "report.md").read_text()
    assert "Is it right here? So far, yes" in page
    assert json.loads((tmp_path / "gpu-report" / "ceilings" / "results.jsonl").read_text().splitlines()[-1])["gflops"] > 0
