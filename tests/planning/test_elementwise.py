"""An activation operator is one dispatch."""

from dataclasses import replace

import pytest

import vkdml
from tests.planning.devices import CPU
from tests.support import tensor
from vkdml.planning.elementwise import plan
from vkdml.spec import element_types, elementwise


def make_problem(*sizes, element=element_types.FLOAT32):
    described = tensor(*sizes, data_type=element.data_type)
    return elementwise.from_desc(vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(InputTensor=described, OutputTensor=described), element=element)


@pytest.mark.parametrize(("element", "kernel"), [(element_types.FLOAT32, "elementwise"), (element_types.FLOAT64, "float64/elementwise")])
def test_one_dispatch(element, kernel):
    planned = plan(make_problem(1, 2, 3, 50, element=element), CPU)
    (dispatch,) = planned.execute
    assert (planned.initialize, planned.fallback, planned.internal) == ((), (), {})
    assert (dispatch.kernel, dispatch.groups) == (kernel, (5, 1, 1))
    assert (dispatch.buffers, dispatch.writes, dispatch.push) == ({"Input": "InputTensor", "Output": "OutputTensor"}, ("OutputTensor",), {})
    assert dispatch.constants["ELEMENTS"] == 300


def test_what_a_device_cannot_hold_is_refused():
    with pytest.raises(vkdml.InvalidArgumentError, match="InputTensor: found 1200 bytes; expected at most 1000"):
        plan(make_problem(1, 2, 3, 50), replace(CPU, max_storage_buffer_range=1000))


def test_workgroups_are_no_more_than_the_device_runs():
    (dispatch,) = plan(make_problem(1, 1, 100, 100), replace(CPU, max_workgroup_count=3)).execute
    assert dispatch.groups == (3, 1, 1)
