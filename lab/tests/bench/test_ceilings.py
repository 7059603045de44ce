"""What a device can do at most."""

import pytest

from vkdml.planning.profiles import compute_units
from vkdml_lab.bench import ceilings
from vkdml_lab.bench.peers import devices
from vkdml_lab.bench.report import ceiling_table
from vkdml_lab.processes import UnavailableError

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def library():
    return ceilings.Library(devices()[0].index, ceilings.QUICK)


def test_ceilings_are_of_loops_that_ran(library):
    assert library._fma(2, 8, 1) > 0
    assert library._read_rate(2**12, [2]) > 0
    assert library._call_costs()["submission_us"] > 0


def test_a_barrier_of_one_workgroup(library):
    """Which waits for no other workgroup."""
    assert library._barrier_microseconds(1) > 0


def test_workgroups_that_do_not_meet(library):
    """Who may not look even once has given up."""
    assert library._barrier_microseconds(2, most_looks=0) is None


def test_workgroups_that_do_not_see(library, monkeypatch, tmp_path):
    """Each looks at what its neighbour stored: if none had stored anything, that would be noticed."""
    source = (ceilings.SHADERS / "barrier.comp").read_text()
    assert source.count("= meeting;") == 1
    (tmp_path / "barrier.comp").write_text(source.replace("= meeting;", "= 0;"))
    monkeypatch.setattr(ceilings, "SHADERS", tmp_path)
    with pytest.raises(RuntimeError, match="were not seen after it"):
        library._barrier_microseconds(1)


def test_workgroups_that_meet_are_as_many_as_run_at_once(library):
    info = library._gpu.info
    most = info.cores if info.is_cpu else compute_units(info)
    assert library._meeting_groups()[-1] == most
    assert all(1 <= groups <= most for groups in library._meeting_groups())


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="no glslangValidator"):
        ceilings.compile_shader("empty")


def test_barriers_are_shown():
    found = {"gflops": 1.0, "read_gb_s": {}, "read_one_workgroup_gb_s": {}, "barrier_us": {"2": 1.234, "8": None},
             "submission_us": 1.0, "dispatch_us": 1.0}
    lines = [" ".join(line.split()) for line in ceiling_table(found).splitlines()]
    assert "| a barrier between 2 workgroups | 1.23 us |" in lines
    assert "| a barrier between 8 workgroups | they did not meet |" in lines
