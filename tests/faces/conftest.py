import pytest

from vkdml.engine.vulkan import gpu as devices
from vkdml.faces import sessions


@pytest.fixture
def lose(device, monkeypatch):
    """A function after which all devices that the test has opened are lost."""
    monkeypatch.setattr(devices, "_open", {})
    monkeypatch.setattr(sessions, "_devices", {})

    def lose():
        for gpu in devices._open.values():
            gpu.driver._lose("lost by a test")

    return lose
