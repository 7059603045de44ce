"""Voices found by a real model in real sound."""

import pytest

pytestmark = pytest.mark.device


def test_voice_activity(example, capsys):
    """Between the silences of half a second at both ends there is speech, and nowhere else."""
    told = example("voice_activity").main([])
    starts, ends = zip(*told["segments"])
    assert 0.4 < starts[0] < 0.7
    assert told["seconds"] - 1.2 < ends[-1] < told["seconds"] - 0.4
    assert sum(ends) - sum(starts) > 0.7 * (told["seconds"] - 1.5)
    assert told["difference"] < 1e-5
    assert "speech from 0.5" in capsys.readouterr().out
