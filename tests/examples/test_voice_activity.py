"""Voices found by a real model in real sound."""

import numpy as np
import onnxruntime
import pytest

pytestmark = pytest.mark.device


def one_by_one(samples, path, rate=16000):
    """What the model for one window gives, window by window, in onnxruntime."""
    session, state = onnxruntime.InferenceSession(path), np.zeros((2, 1, 128), np.float32)
    padded, found = np.pad(samples, (64, 0)), []
    for start in range(0, len(samples) - 511, 512):
        feed = {"input": padded[None, start:start + 576], "state": state, "sr": np.array(rate)}
        probability, state = session.run(None, feed)
        found.append(probability.item())
    return np.array(found)


@pytest.mark.thorough
def test_voice_activity(example, tmp_path, capsys):
    """Between the silences of half a second at both ends there is speech, and nowhere else. Calls of 64 windows give what one
    window after the other gives, whether a recording ends with a call or not.
    """
    voices, speech = example("voice_activity"), example("speech")
    said = speech.load(None)
    recordings = {"empty.wav": np.zeros(16000, np.float32), "long.wav": np.tile(said, 2), "said.wav": said,
                  "windows_64.wav": said[:64 * 512], "windows_65.wav": said[:65 * 512]}
    for name, samples in recordings.items():
        speech.write(tmp_path / name, samples)
    found = voices.main([str(tmp_path)])
    assert found["difference"] < 1e-5
    assert list(found["found"]) == list(recordings)
    path = voices.file_in_package(*voices.MODEL).with_name("silero_vad.onnx")
    for name, probabilities in found["found"].items():
        np.testing.assert_allclose(probabilities, one_by_one(speech.load(tmp_path / name), path), atol=1e-4)
    assert not found["segments"]["empty.wav"]
    starts, ends = zip(*found["segments"]["said.wav"])
    seconds = len(said) / speech.RATE
    assert 0.4 < starts[0] < 0.7
    assert seconds - 1.2 < ends[-1] < seconds - 0.4
    assert sum(ends) - sum(starts) > 0.7 * (seconds - 1.5)
    printed = capsys.readouterr().out
    assert "empty.wav: no speech" in printed
    assert "said.wav: 0.5" in printed
