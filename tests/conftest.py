import pytest

import vkdml


@pytest.fixture(scope="session")
def device() -> vkdml.Device:
    return vkdml.Device()
