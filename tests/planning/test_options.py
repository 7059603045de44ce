"""What no device and no problem could have is refused where options are made."""


import pytest

import vkdml
from vkdml.planning.options import Options


@pytest.mark.parametrize(("name", "value"), [
    ("rows", -1), ("rows", 2.5), ("rows", 1000), ("schedule", "fast"), ("parts", 0), ("workspace_bytes", 0), ("chunk_steps", 0),
    ("workgroup", "a"), ("units_at_once", 9), ("lanes", "a"), ("shared_state", 2.5)])
def test_a_wrong_value_is_refused(name, value):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"^Options: {name}: found {value!r}; expected "):
        Options(**{name: value})


@pytest.mark.parametrize("schedule", ["stepped", "persistent"])
def test_one_part_is_not_in_parts(schedule):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"Options: parts: found 1; expected at least 2 for the schedule {schedule}"):
        Options(schedule=schedule, parts=1)
