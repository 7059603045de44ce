import pytest

from tests.faces.pydirectml.support import Graph


@pytest.fixture
def graph(device):
    """On the default device, which is `device`."""
    return Graph()
