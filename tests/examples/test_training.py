"""Trainings on the device have PyTorch's losses."""

import pytest

pytestmark = pytest.mark.device


@pytest.mark.thorough
def test_losses_are_pytorchs(example):
    found = example("training").main(["--steps", "12"])
    assert found.keys() == {"sunspots", "words"}
    for of_pytorch, of_vkdml in found.values():
        assert of_vkdml == pytest.approx(of_pytorch, rel=1e-4)
        assert of_vkdml[-1] < 0.9 * of_vkdml[0]
