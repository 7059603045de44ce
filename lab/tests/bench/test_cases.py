"""The benchmark's cases."""

from vkdml_lab.bench.cases import CASES, GROWTH, Case


def test_cases():
    everything = [*CASES, *(case for growing in GROWTH.values() for case in growing)]
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(everything) > len(CASES)
    ragged = next(case for case in CASES if case.ragged)
    assert ragged.lengths.max() == ragged.steps
    assert abs(ragged.lengths.mean() - ragged.steps / 2) < 1
    assert Case("lstm", 2, 3, 4, 5, directions=2).flops == 2 * 2 * 3 * 2 * 4 * 5 * (4 + 5)
