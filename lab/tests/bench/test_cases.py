"""Tests the benchmark's cases, and what limits a case's speed: the cost of a submission, reads of memory, or arithmetic."""

import pytest

from lab.tests.bench.support import TINY
from vkdml_lab.bench import bounds
from vkdml_lab.bench.cases import CASES, GROWTH, Case


def test_cases():
    everything = [*CASES, *(case for growing in GROWTH.values() for case in growing)]
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(everything) > len(CASES)
    ragged = next(case for case in CASES if case.ragged)
    assert ragged.lengths.max() == ragged.steps
    assert abs(ragged.lengths.mean() - ragged.steps / 2) < 1
    assert Case("lstm", 2, 3, 4, 5, directions=2).flops == 2 * 2 * 3 * 2 * 4 * 5 * (4 + 5)


def test_bounds():
    measured = {"gflops": 100.0, "read_gb_s": {"1000": 10.0, "2000000": 5.0}, "submission_us": 50.0}
    assert bounds.read_rate(measured, 1000) == 10
    assert bounds.read_rate(measured, 1001) == bounds.read_rate(measured, 3000000) == 5
    assert bounds.bound(TINY, measured) == ("submission", 50e-6)
    assert bounds.bound(Case("gru", 10, 1, 1, 100), measured) == ("reads", pytest.approx(10 * 3 * 100 * 100 * 4 / 5e9))
    assert bounds.bound(Case("gru", 10, 100, 1, 100), measured)[0] == "arithmetic"
