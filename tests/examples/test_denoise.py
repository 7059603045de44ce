"""Noise taken out of real sound by a real model."""

import wave

import numpy as np
import pytest


@pytest.mark.device
def test_denoise(example, tmp_path):
    """Noise alone is gone, speech is not; and the files that it says are there."""
    found = example("denoise").main(["--output-dir", str(tmp_path)])
    assert found["difference"] < 1e-5
    quiet, loud = slice(1600, 6400), slice(9600, -9600)
    power = {name: [float(np.mean(found[name][part] ** 2)) for part in (quiet, loud)] for name in ("noisy", "denoised")}
    assert power["denoised"][0] < 0.01 * power["noisy"][0]
    assert power["denoised"][1] > 0.5 * power["noisy"][1]
    with wave.open(str(tmp_path / "denoised.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (16000, len(found["noisy"]))
    assert (tmp_path / "denoised.png").read_bytes().startswith(b"\x89PNG")
    again = example("voice_activity").main([str(tmp_path / "denoised.wav")])
    assert again["segments"]


@pytest.mark.device
def test_the_sound_that_is_given_stays_as_it_is(example, tmp_path):
    path = tmp_path / "noisy.wav"
    speech = example("speech")
    speech.write(path, speech.load(None))
    content = path.read_bytes()
    example("denoise").main([str(path), "--output-dir", str(tmp_path)])
    assert path.read_bytes() == content
    assert (tmp_path / "denoised.wav").exists()


def test_windows_add_up_to_the_sound(example):
    denoise = example("denoise")
    samples = np.random.default_rng(0).standard_normal(4000).astype(np.float32)
    np.testing.assert_allclose(denoise.samples_of(denoise.spectra(samples), len(samples)), samples, atol=1e-5)
