"""Recordings scored by processes of a Dask or Ray cluster, as one process would."""

import numpy as np
import pytest

pytestmark = pytest.mark.device


@pytest.mark.thorough
@pytest.mark.parametrize(("on", "package", "install"), [("dask", "distributed", "'vkdml[examples]'"), ("ray", "ray", "ray")])
def test_each_recording_is_scored_by_some_device(example, tmp_path, monkeypatch, capsys, on, package, install):
    pytest.importorskip(package, reason=f"for this example: pip install {install}")
    many, speech = example("many"), example("speech")
    said = speech.load(None)
    recordings = {"a.wav": said, "b.wav": np.zeros(8000, np.float32), "c.wav": said[::-1], "d.wav": said[:12000]}
    for name, samples in recordings.items():
        speech.write(tmp_path / name, samples)
    (device,) = many.devices()
    monkeypatch.setattr(many, "devices", lambda: [device, device])
    scores = many.main([str(tmp_path), "--on", on])
    assert [score["recording"] for score in scores] == list(recordings)
    assert scores[1]["speech"] == 0 < scores[0]["speech"]
    assert len({score["process"] for score in scores}) == 2
    session = many.InferenceSession(many.file_in_package(*many.voice_activity.MODEL))
    for score in scores:
        alone = many.score(session, score["recording"], (tmp_path / score["recording"]).read_bytes())
        assert {**alone, "process": score["process"]} == score
    assert "a.wav: " in capsys.readouterr().out


def test_a_folder_without_recordings(example, tmp_path):
    with pytest.raises(SystemExit, match="no .wav file"):
        example("many").main([str(tmp_path)])


def test_a_ray_cluster_whose_nodes_tell_of_no_device(example, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="for this example: pip install ray")
    many, speech = example("many"), example("speech")
    speech.write(tmp_path / "a.wav", np.zeros(8000, np.float32))
    monkeypatch.setattr(many, "devices", list)
    with pytest.raises(SystemExit, match="no node of the cluster has the resource vulkan"):
        many.main([str(tmp_path), "--on", "ray"])
