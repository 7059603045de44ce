"""Voices found by a real model in real sound."""

import pytest

pytestmark = pytest.mark.device


def test_voice_activity(example, capsys):
    """Between the silences of half a second at both ends there is speech, and nowhere else."""
    found = example("voice_activity").main([])
    starts, ends = zip(*found["segments"])
    assert 0.4 < starts[0] < 0.7
    assert found["seconds"] - 1.2 < ends[-1] < found["seconds"] - 0.4
    assert sum(ends) - sum(starts) > 0.7 * (found["seconds"] - 1.5)
    assert found["difference"] < 1e-5
    assert "speech from 0.5" in capsys.readouterr().out
