"""How a product of matrices is cut."""

from dataclasses import replace

import pytest

import vkdml
from vkdml.operators import table
from vkdml.planning.plain import plan
from vkdml.planning.profiles import profile
from vkdml_lab.suite.devices import CPU, GPU
from vkdml_lab.suite.support import tensor


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
