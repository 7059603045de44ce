"""Operating systems that are not here, by stand-ins for what they have and lack."""

import ctypes
import os
import stat
import sys

import pytest

import vkdml
from vkdml.engine.vulkan import files, system


@pytest.mark.parametrize(("platform", "present", "tried"), [
    ("linux", "libvulkan.so.1", 1), ("win32", "vulkan-1.dll", 1), ("darwin", "libvulkan.1.dylib", 1), ("darwin", "libMoltenVK.dylib", 3),
    ("freebsd14", "libvulkan.so.1", 1)])
def test_the_first_loader_that_is_there(platform, present, tried, monkeypatch):
    asked = []

    def load(name):
        asked.append(name)
        if name != present:
            raise OSError(f"no {name}")
        return "the loader"

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", load)
    assert system.load_vulkan() == "the loader"
    assert len(asked) == tried


@pytest.mark.parametrize(("platform", "said"), [
    ("linux", r"\(libvulkan.so.1\); install one and a driver, on Debian and Ubuntu: apt-get install libvulkan1"),
    ("darwin", r"libMoltenVK.dylib.*brew install"), ("win32", r"\(vulkan-1.dll\); install one and a driver, the GPU's driver brings both")])
def test_no_loader_says_what_to_install(platform, said, monkeypatch):
    def load(name):
        raise OSError(name)

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(vkdml.DriverError, match=said):
        system.load_vulkan()


def test_without_linuxs_calls(monkeypatch):
    """As on Windows: no affinity, no fork, no owners of files."""
    for name in ("sched_getaffinity", "register_at_fork", "geteuid"):
        monkeypatch.delattr(os, name)
    assert system.cores() == os.cpu_count()
    system.after_fork_in_child(lambda: None)
    status = list(os.stat(__file__))
    assert not files.others_write(os.stat_result([stat.S_IFREG | 0o666, *status[1:]]))
    assert files.others_write(os.stat_result([stat.S_IFLNK | 0o777, *status[1:]]))


def test_cores_are_those_that_the_process_may_use():
    assert system.cores() == len(os.sched_getaffinity(0))
