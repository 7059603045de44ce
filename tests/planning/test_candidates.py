"""What is chosen, and what runs instead."""

from dataclasses import replace

import pytest

from vkdml.operators import cells
from vkdml.planning.options import Options
from vkdml.planning.plan import fallbacks, tilings
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import CPU, GPU, GPUS, make_problem


@pytest.mark.parametrize(("info", "options"), [
    *((info, options) for info in (replace(CPU, cores=2), GPU, GPUS["RTX 3090"]) for options in (
        Options(), Options(meeting="barrier"), Options(meeting="flow", rows=4), Options(register_loads=0, shared_loads=1))),
], ids=str)
def test_a_fallback_has_the_same_weights_and_room(info, options):
    target = Target(make_problem(100, 9, 256, 256, cell=cells.LSTM), info, replace(options, schedule="persistent"))
    for tiling in tilings(target):
        for other in fallbacks(target, tiling):
            assert (other.loop.schedule, other.loop.meeting) in (("sequence", None), ("stepped", None))
            assert other.loop.spins == 0
            assert (other.input, other.loop.hidden, other.projection) == (tiling.input, tiling.loop.hidden, tiling.projection)
            assert other.loop.units == tiling.loop.units
            assert other.loop.states_bytes <= tiling.loop.states_bytes
            assert other.loop.workgroup <= info.max_workgroup_invocations


def test_steps_that_would_be_too_many_to_record_are_no_choice():
    schedules = [{tiling.loop.schedule for tiling in tilings(Target(make_problem(steps, 1, 64, 512), GPUS["RTX 3090"]))}
                 for steps in (1000, 1001)]
    assert schedules == [{"sequence", "stepped", "persistent"}, {"sequence", "persistent"}]  # a step of a GRU has two phases
