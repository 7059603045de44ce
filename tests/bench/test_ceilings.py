"""What a device can do at most."""

import pytest

from bench import ceilings
from bench.peers import devices

pytestmark = pytest.mark.device


def test_ceilings_are_of_loops_that_ran():
    library = ceilings.Library(devices()[0].index)
    assert library._fma(2, 8, 1) > 0
    assert library._read_rate(2**12, [2]) > 0
    assert library._call_costs()["submission_us"] > 0
