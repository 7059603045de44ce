"""Words that an argument does not take: mypy reports each of them, as it reports an `ignore` that is not needed; and so does the
call, before any work.
"""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import vkdml
from vkdml.onnx import Assignment

X, W, R = (np.ones(shape, np.float32) for shape in ((1, 1, 2), (1, 9, 2), (1, 9, 3)))


def refused(field: str) -> AbstractContextManager[Any]:
    return pytest.raises(vkdml.InvalidArgumentError, match=f": {field}: found 'both'; expected one of ")


@pytest.mark.device
def test_directions() -> None:
    with refused("direction"):
        vkdml.gru(X, W, R, direction="both")  # type: ignore[arg-type]
    with refused("direction"):
        vkdml.lstm(X, W, R, direction="both")  # type: ignore[arg-type]
    with refused("direction"):
        vkdml.rnn(X, W, R, direction="both")  # type: ignore[arg-type]
    with refused("direction"):
        vkdml.GRU(W, R, direction="both")  # type: ignore[arg-type]
    with refused("direction"):
        vkdml.LSTM(W, R, direction="both")  # type: ignore[arg-type]
    with refused("direction"):
        vkdml.RNN(W, R, direction="both")  # type: ignore[arg-type]


def test_options() -> None:
    with refused("schedule"):
        vkdml.Options(schedule="both")  # type: ignore[arg-type]


def test_places() -> None:
    assert Assignment("", ()).on("both") == []  # type: ignore[arg-type]
