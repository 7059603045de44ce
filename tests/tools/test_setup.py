"""tools/setup, tools/kp/ and tools/build_kp.py, as far as they can be tested without building kp."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = (ROOT / "tools" / "setup").read_text()


@pytest.fixture
def build_kp(monkeypatch, tmp_path):
    """The module, with a cache of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.setenv("VKDML_CACHE", str(tmp_path / "cache"))
    return pytest.importorskip("build_kp")


@pytest.fixture
def build(build_kp, monkeypatch, tmp_path):
    """A build of kp, which returns what it made: what it is given, or else what the cache has."""
    setuptools, made = pytest.importorskip("setuptools"), tmp_path / "_kp.so"
    monkeypatch.setattr(build_kp, "prepare", lambda ext, folder: None)
    monkeypatch.setattr(build_kp.BuildExt, "get_ext_fullpath", lambda self, name: str(made))

    def build(new):
        made.unlink(missing_ok=True)
        monkeypatch.setattr(build_kp.build_ext, "build_extension", lambda self, ext: made.write_text(new))
        build_kp.BuildExt(setuptools.Distribution()).build_extension(setuptools.Extension("_kp", []))
        return made.read_text()

    return build


def test_kp_is_built_once(build, monkeypatch):
    assert [build("first"), build("second")] == ["first", "first"]
    monkeypatch.setenv("CXXFLAGS", "-march=native")
    assert build("other") == "other"
    monkeypatch.delenv("CXXFLAGS")
    assert build("third") == "first"


def test_kp_is_built_again_for_other_patches(build, build_kp, monkeypatch, tmp_path):
    patches = shutil.copytree(build_kp.KP, tmp_path / "kp")
    monkeypatch.setattr(build_kp, "KP", patches)
    assert build("first") == "first"
    (patches / "0014-more.patch").write_text("More\n")
    assert build("second") == "second"


def test_a_cache_that_others_may_write_is_not_used(build, tmp_path, capsys):
    build("theirs")
    (tmp_path / "cache" / "kp").chmod(0o777)
    assert build("ours") == "ours"
    assert f"kp: {tmp_path / 'cache' / 'kp'} is not used, because others may have written to it" in capsys.readouterr().out


def test_a_cache_that_cannot_be_written_is_done_without(build, tmp_path, capsys):
    (tmp_path / "cache").touch()
    assert build("ours") == "ours"
    assert "kp: not kept for the next build: " in capsys.readouterr().out


@pytest.mark.parametrize("patch", sorted((ROOT / "tools").rglob("*.patch")), ids=lambda patch: patch.stem)
def test_patches_begin_with_their_reason(patch):
    subject, empty, reason = patch.read_text().split("\n")[:3]
    assert len(subject) > 10
    assert not subject.startswith("diff")
    assert empty == ""
    assert reason


def test_the_page_of_patches_has_each():
    listed = re.findall(r"^\| ?(\d{4}-[\w-]+) ?\|", (ROOT / "tools" / "kp" / "README.md").read_text(), re.M)
    assert listed == sorted(patch.stem for patch in (ROOT / "tools" / "kp").glob("*.patch"))


@pytest.mark.parametrize("name", ["kp/requirements.txt", "kp/source.txt", "models/demo.txt", "models/test.txt", "wheels.txt"])
def test_downloads_are_pinned_by_hash(name):
    lines = (ROOT / "tools" / name).read_text().replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert pinned
    for line in pinned:
        assert re.fullmatch(r"[\w-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", line)


@pytest.mark.parametrize(("mode", "trusted"), [(0o700, True), (0o755, True), (0o775, False), (0o757, False)])
def test_what_others_may_write_is_not_trusted(build_kp, tmp_path, mode, trusted):
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert build_kp.is_ours(folder) == trusted


def test_links_are_not_trusted(build_kp, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert not build_kp.is_ours(tmp_path / "link")


@pytest.mark.parametrize(("manager", "said"), [
    ("apt-get", "apt-get install libvulkan-dev g++ make"), ("dnf", "dnf install vulkan-headers vulkan-loader-devel gcc-c++ make"),
    ("pacman", "pacman -S --needed vulkan-headers vulkan-icd-loader gcc make"), ("apk", "")])
def test_packages_by_their_names_here(tmp_path, manager, said):
    (tmp_path / manager).touch(0o755)
    function = re.search(r"^remedy_for\(\) .*?^}$", SETUP, re.M | re.S)[0]
    found = subprocess.run(["/bin/bash", "-c", f"{function}\nremedy_for libvulkan-dev g++ make"], env={"PATH": str(tmp_path)}, stdout=subprocess.PIPE, text=True)
    assert found.stdout.strip() == said
    assert (found.returncode == 0) == bool(said)


@pytest.mark.parametrize(("wanted", "has_vkdml", "marker", "installed"), [
    ("demo", True, False, ["models"]), ("demo", False, False, ["vkdml", "models"]), ("demo", True, True, ["vkdml", "models"]),
    ("test", True, False, ["replacing the vkdml in .venv by this checkout", "vkdml", "models"])])
def test_the_demo_keeps_a_vkdml_that_its_user_installed(tmp_path, wanted, has_vkdml, marker, installed):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(f"""#!/bin/bash
case "$*" in
  "-m pip show -q vkdml") exit {0 if has_vkdml else 1};;
  *tools/models/*) echo models;;
  "-m pip install"*) echo vkdml;;
  *) exit 9;;
esac""")
    (tmp_path / ".venv/bin/python").chmod(0o755)
    if marker:
        (tmp_path / ".venv/vkdml-installed-demo").touch()
    functions = re.search(r"^# Without their own dependencies .*?(?=^install_packages$)", SETUP, re.M | re.S)[0]
    stubs = ('set -euo pipefail; LOG=/dev/null; step() { case $1 in replacing*) echo "$1";; esac; }; quietly() { "$@"; }; '
             f'said_of_kp() {{ :; }}; fingerprint() {{ echo f; }}; fail() {{ echo "$1"; exit 1; }}; FOR={wanted}')
    result = subprocess.run(["/bin/bash", "-c", f"{stubs}\n{functions}\ninstall_project"], cwd=tmp_path, capture_output=True, text=True)
    assert (result.stdout.splitlines(), result.returncode) == (installed, 0), result.stderr
    markers = [path.name for path in (tmp_path / ".venv").glob("vkdml-installed-*")]
    assert markers == ([f"vkdml-installed-{wanted}"] if "vkdml" in installed else [])


def test_the_image_has_all_that_setup_needs():
    """So that `make wheels` in it installs nothing."""
    for_tests = {"espeak-ng", "libexpat1-dev", "pkg-config", "zlib1g-dev"}
    needed = set(re.findall(r"\[(\S+)\]=/usr/", SETUP)) - for_tests | {"mesa-vulkan-drivers", "python3-venv", "python3-dev", "make"}
    installed = re.search(r"install -y --no-install-recommends \\\n(.*) \\", (ROOT / "Dockerfile").read_text())[1].split()
    by_hand = re.findall(r"^apt-get install (g\+\+ .*)", (ROOT / "docs" / "install.md").read_text(), re.M)[0].split()
    assert needed | {"python3", "ca-certificates"} == set(installed) == {*by_hand, "ca-certificates"}
