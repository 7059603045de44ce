"""The scripts in examples/ on real models, with real sound."""

import importlib
import wave
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_voice_activity(example, capsys):
    """Between the silences of half a second at both ends there is speech, and nowhere else."""
    told = example("voice_activity").main([])
    starts, ends = zip(*told["segments"])
    assert 0.4 < starts[0] < 0.7
    assert told["seconds"] - 1.2 < ends[-1] < told["seconds"] - 0.4
    assert sum(ends) - sum(starts) > 0.7 * (told["seconds"] - 1.5)
    assert told["difference"] < 1e-5
    assert "speech from 0.5" in capsys.readouterr().out


def test_denoise(example, tmp_path):
    """Noise alone is gone, speech is not; and the files that it says are there."""
    told = example("denoise").main(["--output-dir", str(tmp_path)])
    assert told["difference"] < 1e-5
    quiet, loud = slice(1600, 6400), slice(9600, -9600)
    power = {name: [float(np.mean(told[name][part] ** 2)) for part in (quiet, loud)] for name in ("noisy", "denoised")}
    assert power["denoised"][0] < 0.01 * power["noisy"][0]
    assert power["denoised"][1] > 0.5 * power["noisy"][1]
    with wave.open(str(tmp_path / "denoised.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (16000, len(told["noisy"]))
    assert (tmp_path / "denoised.png").read_bytes().startswith(b"\x89PNG")
    again = example("voice_activity").main([str(tmp_path / "denoised.wav")])
    assert again["segments"]


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


def test_what_is_missing_or_wrong_is_said(example, monkeypatch, tmp_path):
    speech = example("speech")
    for data, message in ((b"", "it ends too early"), (b"no sound at all", "not a WAV file with integer samples"), (b"RIFF", "not a WAV file")):
        path = tmp_path / "some.wav"
        path.write_bytes(data)
        with pytest.raises(SystemExit, match=rf"some.wav: .*{message}"):
            speech.load(path)
    with pytest.raises(SystemExit, match="No such file"):
        speech.load(tmp_path / "none.wav")
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 3, 16000, 0, "NONE", ""))
        file.writeframes(bytes(3 * 16001))
    with pytest.raises(SystemExit, match="24 bits a sample, 16001 samples; expected 16 bits"):
        speech.load(path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt-get install espeak-ng"):
        speech.load(None)
