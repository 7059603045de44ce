"""People counted by a real PyTorch model, with windows of several lengths in a call."""

import numpy as np
import pytest

pytestmark = pytest.mark.device


@pytest.mark.thorough
def test_speakers(example, tmp_path, capsys):
    """One voice is one person, two at once are two; a recording goes on in its second window, and noise is no speech."""
    speakers, speech = example("speakers"), example("speech")
    one, other = (speech.load(None, voice) for voice in speech.VOICES[:2])
    both = np.zeros(24000 + max(len(one), len(other)), np.float32)
    both[:len(one)] += one
    both[24000:24000 + len(other)] += other
    noise = np.random.default_rng(0).normal(0, 0.001, 40000).astype(np.float32)
    recordings = {"both": both, "noise": noise, "one": one, "turns": np.concatenate([one, other, one])}
    for name, samples in recordings.items():
        speech.write(tmp_path / f"{name}.wav", samples)
    found = speakers.main([str(tmp_path)])
    assert found["difference"] < 1e-5
    assert len({len(scores) for scores in found["scores"]}) > 3
    parts = {name.removesuffix(".wav"): stretches for name, stretches in found["stretches"].items()}
    assert {name: max((count for *_, count in stretches), default=0) for name, stretches in parts.items()} == {
        "both": 2, "noise": 0, "one": 1, "turns": 1}
    start, end = next((start, end) for start, end, count in parts["both"] if count == 2)
    assert abs(start - 1.5 - np.flatnonzero(other)[0] / speech.RATE) < 0.15
    assert abs(end - np.flatnonzero(np.abs(one) > 0.01)[-1] / speech.RATE) < 0.15
    assert parts["turns"][-1][1] > len(recordings["turns"]) / speech.RATE - 0.7  # in its third window
    assert "noise.wav: no speech" in capsys.readouterr().out
