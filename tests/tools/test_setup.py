"""tools/setup and tools/kp/, as far as they can be tested without building kp."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = (ROOT / "tools" / "setup").read_text()
PATCHES = sorted((ROOT / "tools" / "kp").glob("*.patch"))


def test_versions_of_kp_agree():
    """Of the last patch, the package's requirement, from which tools/setup takes it, and the check at the import."""
    dependencies = (ROOT / "pyproject.toml").read_text(), (ROOT / "src" / "vkdml" / "runtime" / "device.py").read_text()
    required, checked = re.search(r'"kp==([^"]+)"', dependencies[0])[1], re.search(r'^KP_VERSION = "(\S+)"', dependencies[1], re.M)[1]
    found = subprocess.run(["bash", "-c", re.search(r"^KP_VERSION=.*$", SETUP, re.M)[0] + '\necho "$KP_VERSION"'], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert required == checked == found.stdout.strip() != ""
    assert f"\n+    version='{required}'," in PATCHES[-1].read_text()


@pytest.mark.parametrize("patch", sorted((ROOT / "tools").rglob("*.patch")), ids=lambda patch: patch.stem)
def test_patches_begin_with_their_reason(patch):
    subject, empty, reason = patch.read_text().split("\n")[:3]
    assert len(subject) > 10
    assert not subject.startswith("diff")
    assert empty == ""
    assert reason


@pytest.mark.parametrize("name", ["kp/requirements.txt", "kp/source.txt", "models/demo.txt", "models/test.txt"])
def test_downloads_are_pinned_by_hash(name):
    lines = (ROOT / "tools" / name).read_text().replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert pinned
    for line in pinned:
        assert re.fullmatch(r"[\w-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", line)


@pytest.mark.parametrize(("mode", "trusted"), [(0o700, True), (0o755, True), (0o775, False), (0o757, False)])
def test_what_others_may_write_is_not_trusted(tmp_path, mode, trusted):
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert is_ours(folder) == trusted


def test_links_are_not_trusted(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert not is_ours(tmp_path / "link")


@pytest.mark.parametrize(("manager", "said"), [
    ("apt-get", "apt-get install libvulkan-dev g++ make"), ("dnf", "dnf install vulkan-headers vulkan-loader-devel gcc-c++ make"),
    ("pacman", "pacman -S --needed vulkan-headers vulkan-icd-loader gcc make"), ("apk", "")])
def test_packages_by_their_names_here(tmp_path, manager, said):
    (tmp_path / manager).touch(0o755)
    function = re.search(r"^remedy_for\(\) .*?^}$", SETUP, re.M | re.S)[0]
    found = subprocess.run(["/bin/bash", "-c", f"{function}\nremedy_for libvulkan-dev g++ make"], env={"PATH": str(tmp_path)}, stdout=subprocess.PIPE, text=True)
    assert found.stdout.strip() == said
    assert (found.returncode == 0) == bool(said)


def test_the_image_has_all_that_setup_needs():
    """So that `make wheels` in it installs nothing."""
    needed = set(re.findall(r"\[(\S+)\]=/usr/", SETUP)) - {"espeak-ng"} | {"mesa-vulkan-drivers", "python3-venv", "python3-dev"}
    installed = re.search(r"install -y --no-install-recommends \\\n(.*)", (ROOT / "Dockerfile").read_text())[1].split()
    by_hand = re.findall(r"^apt-get install (g\+\+ .*)", (ROOT / "docs" / "install.md").read_text(), re.M)[0].split()
    assert needed | {"python3", "ca-certificates"} == set(installed) == {*by_hand, "ca-certificates"}


def is_ours(path):
    function = re.search(r"^is_ours\(\) .*$", SETUP, re.M)[0]
    return subprocess.run(["bash", "-c", f'{function}\nis_ours "$1"', "bash", path]).returncode == 0
