"""What comes of each failure of the driver: an error that says what was being done, and right results afterwards.

A layer (lab/vkdml_lab/faults/layer.c) makes calls fail in a worker's process, where each scenario is run from its beginning on.
"""

import pytest

from vkdml_lab.faults.layer import Fault
from vkdml_lab.faults.scenarios import SCENARIOS, SCHEDULES_OF_CELLS
from vkdml_lab.faults.tries import Tries
from vkdml_lab.faults.worker import NOT_REACHED, RIGHT

pytestmark = pytest.mark.device

OUT_OF_MEMORY = (-1, -2, -1000069000)  # VK_ERROR_OUT_OF_HOST_MEMORY, _DEVICE_MEMORY, _POOL_MEMORY


@pytest.fixture(scope="module")
def tries(tmp_path_factory):
    tries = Tries(tmp_path_factory.mktemp("layer"))
    yield tries
    tries.close()


def needs(scenario):
    if scenario == "torch":
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")


def check(tries, scenario, faults):
    """All are tried, also after one that goes wrong."""
    wrong = []
    for fault in faults:
        try:
            outcome = tries.ask("attempt", scenario, fault)
        except AssertionError as error:
            wrong.append(str(error))
            continue
        # Waits are repeated until the submission has ended, and persistent parts may give up, so some calls are not always made
        is_sure = fault.function != "vkWaitForFences" and "persistent" not in scenario
        # Where memory is short once, what the store keeps makes room for another attempt
        is_right = outcome == RIGHT and (fault.repeats or fault.result not in OUT_OF_MEMORY)
        if is_right or (outcome == NOT_REACHED and is_sure):
            wrong.append(f"{fault}: {outcome}, where an error was expected")
    assert not wrong, "\n".join(wrong)


def test_each_function_may_fail(tries):
    """At its last call, in one of its ways."""
    last = {ways[0].function + str(ways[0].repeats): ways[at % len(ways)] for at, ways in enumerate(tries.faults("activation"))}
    assert len(last) > 20
    check(tries, "activation", last.values())


def test_a_submission_keeps_its_fence(tries):
    """When it runs again, its fence is reset."""
    counts = tries.ask("counts", "activation")
    assert counts["vkResetFences"] > 0
    assert counts["vkCreateFence"] + counts["vkResetFences"] == counts["vkQueueSubmit"]


@pytest.mark.family("faces", first=1)
@pytest.mark.parametrize("face", ["pydirectml", "torch"])
def test_faces_tell_failures(tries, face):
    """While a kernel is compiled, and while a submission is given to the driver, which loses the device."""
    needs(face)
    submissions = tries.ask("counts", face)["vkQueueSubmit"]
    check(tries, face, [Fault("vkCreateComputePipelines", 1, -1), Fault("vkQueueSubmit", submissions, -4)])


@pytest.mark.thorough
def test_each_call_may_fail_in_each_way(tries):
    check(tries, "activation", [fault for ways in tries.faults("activation") for fault in ways])


@pytest.mark.thorough
@pytest.mark.parametrize("place", range(1, len(SCENARIOS)), ids=list(SCENARIOS)[1:])
def test_calls_may_fail(tries, place):
    """Each in one of its ways, in turns; of the cells' schedules, which are alike, a third of the calls each."""
    scenario = list(SCENARIOS)[place]
    needs(scenario)
    faults = [ways[at % len(ways)] for at, ways in enumerate(tries.faults(scenario))]
    check(tries, scenario, faults[place % 3::3] if scenario in SCHEDULES_OF_CELLS else faults)
