"""All that the planner could choose."""

import pytest

import vkdml
from bench import candidates
from bench.adapters.ours import make_desc
from bench.cases import Case
from vkdml.planning.candidates import Planner
from vkdml.spec.problem import from_desc

pytestmark = pytest.mark.device


def test_candidates_are_forced_as_they_are():
    """The options made for each candidate leave no other, and the model's choice comes first."""
    device = vkdml.Device()
    case = Case("gru", 3, 1, 8, 256)
    problem = from_desc(make_desc(case, "float32"))
    tried = candidates.candidates(case, device)
    assert len({tiling.loop.schedule for tiling, _ in tried}) > 1
    for tiling, _ in tried:
        assert Planner(problem, device.info, candidates.forced(tiling)).tilings() == [tiling]
    rows = candidates.measure(case, device, samples=1)
    assert [row["schedule"] for row in rows] == [tiling.loop.schedule for tiling, _ in tried]
    assert tried[0][0] == Planner(problem, device.info).best()
