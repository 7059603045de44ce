"""How a product of matrices is cut."""

from dataclasses import replace

import pytest

import vkdml
from vkdml.operators import table
from vkdml.planning import plain
from vkdml.planning.plain import plan
from vkdml.planning.profiles import profile
from vkdml_lab.suite.devices import CPU, GPU
from vkdml_lab.suite.support import tensor


def problem(m, k, n, **fields):
    given = {"ATensor": tensor(m, k), "BTensor": tensor(k, n), "OutputTensor": tensor(m, n)} | fields
    return table.from_desc(vkdml.DML_GEMM_OPERATOR_DESC(**given))


@pytest.mark.parametrize(("sizes", "groups"), [((1, 100, 1000), 32), ((64, 8, 64), 4), ((65, 8, 64), 6), ((1, 1, 1), 1)])
def test_tiles(sizes, groups):
    (dispatch,) = plan(problem(*sizes), GPU).execute
    assert dispatch.groups == (groups, 1, 1)


def test_what_vulkan_promises_is_enough():
    (dispatch,) = plan(problem(1, 1, 1), GPU).execute
    tile, block = dispatch.constants["TILE"], dispatch.constants["BLOCK"]
    assert dispatch.constants["WORKGROUP"] == (tile // 4) ** 2 <= 128
    assert 16 * (tile * tile // 4 + 2 * block * (tile // 4 + 1)) <= 16384  # bytes of shared memory


def test_no_more_workgroups_than_the_device_runs():
    dispatches = plan(problem(200, 4, 32), replace(GPU, max_workgroup_count=3)).execute
    assert [(dispatch.groups[0], dispatch.push["first_tile"]) for dispatch in dispatches] == [(3, 0), (3, 3), (1, 6)]


def test_a_submission_ends_where_it_would_take_long(monkeypatch):
    monkeypatch.setattr(plain, "_MOST_PRODUCTS", 32 * 32 * 4 * 2)
    planned = plan(problem(128, 4, 32), GPU)
    assert [dispatch.starts_submission for dispatch in planned.execute] == [False, True]
    assert planned.submissions == 2


def test_more_loop_iterations_than_a_driver_runs_are_refused():
    llvmpipe = replace(CPU, driver="llvmpipe")
    most = (profile(llvmpipe).most_iterations - 18) * 16
    assert plan(problem(1, most, 1), llvmpipe).execute
    with pytest.raises(vkdml.InvalidArgumentError, match=f"ATensor.Sizes: found K = {most + 1}; expected at most {most} on"):
        plan(problem(1, most + 1, 1), llvmpipe)


def test_transposed_matrices_are_strides():
    transposed = problem(5, 3, 4, ATensor=tensor(3, 5), BTensor=tensor(4, 3), TransA=1, TransB=1,
                         CTensor=tensor(5, 4, Strides=(0, 1)))
    (dispatch,) = plan(transposed, CPU).execute
    names = ("a_stride_row", "a_stride_k", "b_stride_k", "b_stride_column", "c_stride_row", "c_stride_column", "output_stride_row")
    assert [dispatch.push[name] for name in names] == [1, 5, 1, 3, 0, 1, 4]
    assert [dispatch.push[name] for name in ("rows", "columns", "inner")] == [5, 4, 3]
