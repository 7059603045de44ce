"""What the package asks of the operating system."""

import ctypes
import os

import pytest

import vkdml
from vkdml.engine.vulkan import system


def test_no_loader_says_what_to_install(monkeypatch):
    def load(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(vkdml.DriverError, match=r"\(libvulkan.so.1\); install one and a driver, on Debian and Ubuntu: apt-get install libvulkan1"):
        system.load_vulkan()


def test_cores_are_those_that_the_process_may_use():
    assert system.cores() == len(os.sched_getaffinity(0))
