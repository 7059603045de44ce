"""What no device and no problem could have is refused."""

from typing import Any

import pytest

import vkdml
from vkdml.planning.options import SCHEDULES, Options, check_options

SOME: Any = 2.5
WORD: Any = "a"


@pytest.mark.parametrize("options", [
    Options(rows=-1), Options(rows=SOME), Options(rows=1000), Options(schedule="any"), Options(parts=0), Options(workspace_bytes=0),
    Options(chunk_steps=0), Options(workgroup=WORD), Options(units_at_once=9), Options(lanes=WORD), Options(shared_state=SOME)], ids=repr)
def test_a_wrong_value_is_refused(options):
    (name,) = (name for name, value in vars(options).items() if value != getattr(Options, name))
    with pytest.raises(vkdml.InvalidArgumentError, match=f"options.{name}: found {getattr(options, name)!r}; expected "):
        check_options(options)


@pytest.mark.parametrize("schedule", ["stepped", "persistent"])
def test_one_part_is_not_in_parts(schedule):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"options.parts: found 1; expected at least 2 for the schedule {schedule}"):
        check_options(Options(schedule=schedule, parts=1))


def test_right_values_are_not():
    for schedule in (None, *SCHEDULES):
        check_options(Options(schedule=schedule, parts=2, fused=True, lanes=False, rows=32, units_at_once=8, workgroup=1, chunk_steps=1))
