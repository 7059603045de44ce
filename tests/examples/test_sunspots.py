"""A training on the device has PyTorch's losses."""

import pytest

pytestmark = pytest.mark.device


def test_losses_are_pytorchs(example):
    found = example("sunspots").main(["--steps", "12"])
    assert found["vkdml"] == pytest.approx(found["PyTorch"], rel=1e-4)
    assert found["vkdml"][-1] < 0.9 * found["vkdml"][0]
