"""Recordings scored by processes of a Dask cluster, as one process would."""

import numpy as np
import pytest

pytest.importorskip("distributed", reason="Dask is an extra: pip install 'vkdml[examples]'")

pytestmark = pytest.mark.device


def test_each_recording_is_scored_by_some_device(example, tmp_path, monkeypatch, capsys):
    many, speech = example("many"), example("speech")
    said = speech.load(None)
    recordings = {"a.wav": said, "b.wav": np.zeros(8000, np.float32), "c.wav": said[::-1], "d.wav": said[:12000]}
    for name, samples in recordings.items():
        speech.write(tmp_path / name, samples)
    (device,) = many.devices()
    monkeypatch.setattr(many, "devices", lambda: [device, device])
    scores = many.main([str(tmp_path)])
    assert [score["recording"] for score in scores] == list(recordings)
    assert scores[1]["speech"] == 0 < scores[0]["speech"]
    assert len({score["process"] for score in scores}) == 2
    session = many.InferenceSession(many.file_in_package("silero_vad", "6.2.3", "data/silero_vad.onnx"))
    for score in scores:
        alone = many.score(session, score["recording"], (tmp_path / score["recording"]).read_bytes())
        assert {**alone, "process": score["process"]} == score
    assert "a.wav: " in capsys.readouterr().out


def test_a_folder_without_recordings(example, tmp_path):
    with pytest.raises(SystemExit, match="no .wav file"):
        example("many").main([str(tmp_path)])
