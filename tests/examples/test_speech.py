"""Sound that the examples are given or make."""

import wave

import pytest


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
