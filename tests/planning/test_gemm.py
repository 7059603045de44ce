"""How a product of matrices is cut."""

from dataclasses import replace

import pytest

import vkdml
from tests.planning.devices import CPU
from tests.support import tensor
from vkdml.planning import gemm
from vkdml.planning.plain import plan
from vkdml.planning.profiles import profile
from vkdml.spec import operators

GPU = replace(CPU, type="discrete", compute_units=40)


def problem(m, k, n, **fields):
    given = {"ATensor": tensor(m, k), "BTensor": tensor(k, n), "OutputTensor": tensor(m, n)} | fields
    return operators.from_desc(vkdml.DML_GEMM_OPERATOR_DESC(**given))


@pytest.mark.parametrize(("sizes", "info", "side", "groups"), [
    ((1, 100, 1000), GPU, 16, 63), ((640, 8, 64), GPU, 32, 40), ((639, 8, 64), GPU, 16, 160), ((64, 8, 32), replace(CPU, cores=2), 32, 2),
    ((1, 1, 1), CPU, 16, 1)])
def test_large_tiles_where_there_are_enough_for_the_device(sizes, info, side, groups):
    (dispatch,) = plan(problem(*sizes), info).execute
    assert (dispatch.constants["TILE"], dispatch.groups) == (side, (groups, 1, 1))
    assert dispatch.constants["WORKGROUP"] == 64 <= 128  # which Vulkan promises
    assert dispatch.constants["TILE"] ** 2 * 4 + 2 * 16 * (side + 1) * 4 <= 16384  # and of shared memory


def test_no_more_workgroups_than_the_device_runs():
    dispatches = plan(problem(100, 4, 16), replace(GPU, max_workgroup_count=3)).execute
    assert [(dispatch.groups[0], dispatch.push["first_tile"]) for dispatch in dispatches] == [(3, 0), (3, 3), (1, 6)]


def test_a_submission_ends_where_it_would_take_long(monkeypatch):
    monkeypatch.setattr(gemm, "_MOST_PRODUCTS", 16 * 16 * 4 * 2)
    planned = plan(problem(64, 4, 16), GPU)
    assert [dispatch.starts_submission for dispatch in planned.execute] == [False, True]
    assert planned.submissions == 2


def test_more_loop_iterations_than_a_driver_runs_are_refused():
    llvmpipe = replace(CPU, driver="llvmpipe")
    most = (profile(llvmpipe).most_iterations - 6) * 16
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
