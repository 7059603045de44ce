"""Noise taken out of real sound by a real model, as a stream."""

import io
import wave

import numpy as np
import pytest

pytestmark = pytest.mark.device


def test_denoise(example, tmp_path):
    """Noise alone is gone, speech is not and has not moved; the file that it says is there."""
    path = tmp_path / "clean.wav"
    found = example("denoise").main(["--output", str(path)])
    noisy, clean = found["noisy"], found["clean"]
    assert found["difference"] < 1e-5
    quiet, loud = slice(1600, 6400), slice(9600, -9600)
    assert np.mean(clean[quiet] ** 2) < 0.01 * np.mean(noisy[quiet] ** 2)
    assert np.corrcoef(noisy[loud], clean[loud])[0, 1] > 0.9
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnframes()) == (16000, len(noisy))


def test_live_sound_is_the_sound_of_a_file(example, tmp_path):
    denoise, speech = example("denoise"), example("speech")
    path, sink = tmp_path / "noisy.wav", io.BytesIO()
    samples = speech.load(None)[:12800] + np.random.default_rng(0).normal(0, 0.02, 12800).astype(np.float32)
    speech.write(path, samples)
    content = path.read_bytes()
    denoise.main([str(path), "--output", str(tmp_path / "clean.wav")])
    denoise.live(io.BytesIO(speech.to_pcm(samples) + b"\0"), sink)  # half a sample at the end, which makes no block
    delayed = speech.from_pcm(sink.getvalue())
    clean = speech.load(tmp_path / "clean.wav")
    np.testing.assert_array_equal(delayed[denoise.BLOCK:], clean[:len(delayed) - denoise.BLOCK])
    assert path.read_bytes() == content
