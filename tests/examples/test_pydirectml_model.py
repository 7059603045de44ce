"""A whole model through PyDirectML's interface gives scores; tests/faces/pydirectml/test_init.py compares one with the reference."""

import numpy as np
import pytest


@pytest.mark.device
def test_scores(example):
    scores = example("pydirectml_model").main()
    assert scores.shape == (1, 1, 10, 3)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) > 0.01
