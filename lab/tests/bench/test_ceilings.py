"""Tests bench.ceilings, which measures the limits of a device: arithmetic, reads of memory, and the costs of a call."""

import pytest

from vkdml_lab.bench import ceilings
from vkdml_lab.bench.peers import devices
from vkdml_lab.processes import UnavailableError

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def library():
    return ceilings.Library(devices()[0].index, ceilings.QUICK)


def test_ceilings_are_of_loops_that_ran(library):
    assert library._fma(2, 8, 1) > 0
    assert library._read_rate(2**12, [2]) > 0
    assert library._call_costs()["submission_us"] > 0


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="no glslangValidator"):
        ceilings.compile_shader("empty")
