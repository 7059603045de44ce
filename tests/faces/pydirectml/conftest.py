import pytest

from tests.faces.pydirectml.support import Graph


@pytest.fixture
def graph():
    return Graph()
