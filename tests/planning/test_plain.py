"""Operators without a time loop: an activation is one dispatch, and a product of matrices is cut."""

from dataclasses import replace

import pytest

import vkdml
from vkdml.operators import element_types, plain_problem, table
from vkdml.planning.plain import plan
from vkdml.planning.profiles import profile
from vkdml_lab.suite.devices import CPU, GPU
from vkdml_lab.suite.support import tensor


def dimensions(*inner, outermost):
    """Sizes and strides, the innermost first."""
    rows = [*inner, *[(1, 0, 0)] * (7 - len(inner)), (outermost[0], *outermost[1:])]
    return {"inner_dimensions": len(inner)} | {
        f"{name}_{place}": row[column] for place, row in enumerate(rows) for column, name in enumerate(("size", "input_stride", "output_stride"))}


def make_problem(*sizes, element=element_types.FLOAT32):
    described = tensor(*sizes, data_type=element.data_type)
    return plain_problem.elementwise(vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(InputTensor=described, OutputTensor=described), element=element)


def test_what_a_device_cannot_hold_is_refused():
    with pytest.raises(vkdml.InvalidArgumentError, match="InputTensor: found 1200 bytes; expected at most 1000"):
        plan(make_problem(1, 2, 3, 50), replace(CPU, max_storage_buffer_range=1000))


def test_an_operation_without_a_kernel_is_no_addition():
    described = tensor(2)
    problem = plain_problem.arithmetic(vkdml.DML_ELEMENT_WISE_ADD_OPERATOR_DESC(ATensor=described, BTensor=described, OutputTensor=described))
    for operation in {*plain_problem.OPERATIONS.values()}:
        plan(replace(problem, operation=operation), CPU)
    with pytest.raises(KeyError):
        plan(replace(problem, operation=max), CPU)


def test_workgroups_are_no_more_than_the_device_runs():
    (dispatch,) = plan(make_problem(1, 1, 100, 100), replace(CPU, max_workgroup_count=3)).execute
    assert dispatch.groups == (3, 1, 1)


def test_invocations_are_a_number_that_the_shader_can_hold():
    (dispatch,) = plan(make_problem(2**29), replace(CPU, max_workgroup_count=2**31 - 1, max_storage_buffer_range=2**32 - 1)).execute
    assert dispatch.groups == (65535, 1, 1)


@pytest.mark.parametrize(("input_strides", "output_strides", "expected"), [
    ((150, 50, 1), (150, 50, 1), dimensions(outermost=(300, 1, 1))),
    ((1, 2, 6), (150, 50, 1), dimensions((50, 6, 1), (3, 2, 50), outermost=(2, 1, 150))),
    ((160, 50, 1), (150, 50, 1), dimensions((150, 1, 1), outermost=(2, 160, 150))),
    ((0, 50, 1), (150, 50, 1), dimensions((150, 1, 1), outermost=(2, 0, 150))),
    ((0, 0, 1), (150, 50, 1), dimensions((50, 1, 1), outermost=(6, 0, 50))),
])
def test_dimensions_without_a_gap_are_one(input_strides, output_strides, expected):
    described = [tensor(2, 3, 50, data_type=element_types.FLOAT32.data_type, Strides=strides) for strides in (input_strides, output_strides)]
    problem = plain_problem.elementwise(vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(*described))
    (dispatch,) = plan(problem, CPU).execute
    assert dispatch.push == {"elements": 300, **expected}


def problem(m, k, n, **fields):
    given = {"ATensor": tensor(m, k), "BTensor": tensor(k, n), "OutputTensor": tensor(m, n)} | fields
    return table.from_desc(vkdml.DML_GEMM_OPERATOR_DESC(**given))


def test_what_vulkan_promises_is_enough():
    (dispatch,) = plan(problem(1, 1, 1), GPU).execute
    tile, block = dispatch.constants["TILE"], dispatch.constants["BLOCK"]
    assert dispatch.constants["WORKGROUP"] == (tile // 4) ** 2 <= 128
    assert 16 * (tile * tile // 4 + 2 * block * (tile // 4 + 1)) <= 16384  # bytes of shared memory


def test_no_more_workgroups_than_the_device_runs():
    dispatches = plan(problem(200, 4, 32), replace(GPU, max_workgroup_count=3)).execute
    assert [(dispatch.groups[0], dispatch.push["first_tile"]) for dispatch in dispatches] == [(3, 0), (3, 3), (1, 6)]


def test_more_loop_iterations_than_a_driver_runs_are_refused():
    llvmpipe = replace(CPU, driver="llvmpipe")
    most = (profile(llvmpipe).most_iterations - 18) * 16
    assert plan(problem(1, most, 1), llvmpipe).execute
    with pytest.raises(vkdml.InvalidArgumentError, match=f"ATensor.Sizes: found K = {most + 1}; expected at most {most} on"):
        plan(problem(1, most + 1, 1), llvmpipe)
