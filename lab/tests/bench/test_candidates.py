"""Tests bench.candidates, which times the plans that the planner could choose for a case."""

import pytest

import vkdml
from vkdml.operators.problem import from_desc
from vkdml.planning.plan import best
from vkdml.planning.tiling import Target
from vkdml_lab.bench import candidates
from vkdml_lab.bench.adapters.ours import make_desc
from vkdml_lab.bench.cases import Case

pytestmark = pytest.mark.device


@pytest.mark.thorough
def test_candidates_are_timed_beside_the_choice():
    """The first row is the cost model's choice. "over the best", the share of extra time, is 0 in the fastest plan's row."""
    device = vkdml.Device()
    case = Case("gru", 3, 1, 8, 32)
    target = Target(from_desc(make_desc(case, "float32")), device.info)
    tried = candidates.worth_trying(target)
    assert len({tiling.loop.schedule for tiling in tried}) > 1
    assert tried[0] == best(target)
    rows = candidates.of_case(case, device, samples=1)
    assert [row["way"].split(",")[0] for row in rows] == [tiling.loop.schedule for tiling in tried]
    assert [row["kernel"] for row in rows] == [tiling.loop.kernel for tiling in tried]
    assert min(row["over the best"] for row in rows if row["ms"] is not None) == 0
