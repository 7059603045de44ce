"""The demo pronounces as g2p_en does, on the device."""

import pytest

import vkdml
from vkdml import cli
from vkdml.cli import demo


@pytest.fixture(scope="module")
def pronounce(device):
    return demo.Pronouncer(device)


def test_known_words(pronounce):
    """As g2p_en 2.1.0's own numpy code says them."""
    assert pronounce(["hello", "world"], verify=True) == ["HH EH1 L OW0".split(), "W ER1 L D".split()]
    assert 0 < pronounce.worst < 1e-4


def test_words_together_are_words_alone(pronounce):
    assert pronounce(demo.WORDS) == [pronounce([word])[0] for word in demo.WORDS]


@pytest.mark.device
def test_command(capsys):
    assert cli.main(["demo", "shader", "naive"]) == 0
    printed = capsys.readouterr().out
    assert "device    " in printed
    assert "shader  SH EY1 D ER0" in printed
    assert "ms a word" in printed
    assert "largest difference from the float64 reference: " in printed


@pytest.mark.device
def test_no_device(capsys, monkeypatch):
    monkeypatch.setenv("VKDML_DEVICE", "none such")
    assert cli.main(["demo", "a"]) == 1
    assert "no Vulkan device 'none such'" in capsys.readouterr().err


def test_a_missing_package():
    with pytest.raises(vkdml.MissingPackageError, match="pip install --no-deps no-such-package==1.0"):
        demo.file_in_package("no_such_package", "1.0", "model.onnx")
