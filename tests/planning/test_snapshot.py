"""Plans and kernels are those of snapshot.json. After a change that is meant: `python -m tests.planning.snapshot --write`."""

import json

import pytest

from tests.planning import snapshot


@pytest.mark.thorough
def test_plans_and_kernels_are_as_before():
    before, now = json.loads(snapshot.FILE.read_text()), snapshot.joined(snapshot.snapshot())
    assert before["kernels"]
    assert before["plans"]
    assert snapshot.differences(before, now) == []
