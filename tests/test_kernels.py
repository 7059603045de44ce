"""The SPIR-V in the package is what shaders/ compiles to, and asks devices for nothing special."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools import compile_shaders
from vkdml import kernels

ROOT = Path(__file__).parent.parent
SHIPPED = Path(kernels.__file__).parent / "spirv"

# Shader, GroupNonUniform, GroupNonUniformShuffle: what Vulkan 1.1 has without enabling a feature
ALLOWED_CAPABILITIES = {"plain": {1}, "lanes": {1, 61, 65}}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    directory = tmp_path_factory.mktemp("spirv")
    compile_shaders.compile_shaders(directory)
    return directory


def test_shipped_equals_source(fresh):
    names = {path.name for path in fresh.iterdir()}
    assert names == {path.name for path in SHIPPED.glob("*.spv")}, "run: pip install -e ."
    for name in names:
        assert (SHIPPED / name).read_bytes() == (fresh / name).read_bytes(), f"{name} is stale; run: pip install -e ."


@pytest.mark.parametrize("name", compile_shaders.KERNELS)
def test_capabilities(name):
    words = np.frombuffer(kernels.load(name).spirv, "<u4")
    found, at = set(), 5
    while at < len(words) and words[at] & 0xFFFF == 17:  # OpCapability
        found.add(int(words[at + 1]))
        at += int(words[at]) >> 16
    assert found <= ALLOWED_CAPABILITIES["lanes" if name.endswith("_lanes") else "plain"]
    assert 1 in found


@pytest.mark.parametrize("name", compile_shaders.KERNELS)
def test_constant_ids_are_unique(name):
    ids = kernels.load(name).constant_ids
    assert len(set(ids.values())) == len(ids) > 5
    assert ids["WORKGROUP"] == 0


def test_specialize_takes_known_names_only():
    kernel = kernels.load("pack")
    constants = dict.fromkeys(kernel.constant_ids, 7) | {"NOT_THERE": 1}
    values = kernel.specialize(constants)
    assert {values[place] for place in kernel.constant_ids.values()} == {7}
    with pytest.raises(KeyError):
        kernel.specialize({})


def test_broken_shader_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken.comp").write_text("#version 450\nvoid main() { nothing(); }\n")
    monkeypatch.setattr(compile_shaders, "SHADERS", tmp_path)
    monkeypatch.setattr(compile_shaders, "KERNELS", {"broken": ("broken.comp", [])})
    with pytest.raises(SystemExit, match=r"broken\.comp does not compile as broken: .*nothing"):
        compile_shaders.compile_shaders(tmp_path / "out")


def test_wheel_holds_the_kernels(tmp_path):
    source = tmp_path / "source"  # a copy: a build writes into its tree
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in ("shaders", "src", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.spv", "*.egg-info"))
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(source)],
                   check=True, capture_output=True)
    listing = subprocess.run([sys.executable, "-m", "zipfile", "-l", str(next(tmp_path.glob("*.whl")))],
                             check=True, capture_output=True, text=True).stdout
    for name in compile_shaders.KERNELS:
        assert f"vkdml/spirv/{name}.spv" in listing
