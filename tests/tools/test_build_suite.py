"""The conformance suite, and the report of a GPU, in a wheel: all that its modules import is there, and they run outside of the source tree."""

import ast
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from bench import ceilings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shipped(monkeypatch):
    """The files, from the root of the tree."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    build_suite = pytest.importorskip("build_suite")
    return sorted(str(path.relative_to(ROOT)) for pattern in build_suite.SUITE for path in ROOT.glob(pattern))


def test_ceilings_are_compiled_with_what_they_try(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    build_suite = pytest.importorskip("build_suite")
    assert ceilings.ALL.chains == build_suite.CHAINS
    assert set(ceilings.QUICK.chains) <= set(build_suite.CHAINS)
    assert {name for name, _ in build_suite.VARIANTS.values()} == {path.stem for path in ceilings.SHADERS.glob("*.comp")}


def test_what_it_imports_is_there(shipped):
    """Imports within functions may fail, and skip a test."""
    missing = set()
    for name in (name for name in shipped if name.endswith(".py")):
        for node in ast.parse((ROOT / name).read_text()).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("tests", "tools", "bench"):
                tries = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                if not any(f"{module.replace('.', '/')}.py" in shipped for module in tries):
                    missing.add(f"{name}: {node.module}")
    assert not missing


@pytest.mark.device
@pytest.mark.thorough
def test_a_wheel_runs_the_suite(tmp_path):
    """In an environment of its own, which has everything but this package from the tests' one."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("vkdml-*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", packages, wheel], check=True)
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
    again = [*command[:3], "reproduce", run["tests"][0]["test"], "--dump", tmp_path / "dump"]
    assert subprocess.run(again, cwd=tmp_path, env=outside).returncode == 0
    assert (tmp_path / "dump" / "replay.py").exists()

    (tmp_path / "none").mkdir()  # no compiler is found, nor any other program
    command = [tmp_path / "venv" / "bin" / "python", "-m", "vkdml", "gpu-report", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=outside | {"PATH": str(tmp_path / "none")}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "gpu-report" / "report.md").read_text()
    assert "Is it right here? Yes" in page
    assert json.loads((tmp_path / "gpu-report" / "ceilings" / "results.jsonl").read_text().splitlines()[-1])["gflops"] > 0
