"""What is called of each package: a function of the package's name, which returns numbers and texts to compare.

Run in the packages' own environment, so nothing of vkdml is imported here:

    python calls.py NAME RESULT
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np


def sound(rate: int = 16000, seconds: float = 3) -> np.ndarray:
    """A hum of 120 Hz with harmonics that comes and goes, which is speech for the networks, and noise."""
    t = np.arange(int(rate * seconds)) / rate
    hum = sum(np.sin(2 * np.pi * 120 * k * t + k * np.sin(2 * np.pi * 3 * t)) / k for k in range(1, 20))
    noise = np.random.default_rng(0).standard_normal(t.size)
    return (0.1 * hum * (np.sin(2 * np.pi * 0.8 * t) > 0) + 0.002 * noise).astype(np.float32)


def piper() -> Any:
    """Arabic vowel marks: GRUs, some of them in both directions."""
    from piper.tashkeel import TashkeelDiacritizer

    mark = TashkeelDiacritizer()
    return [mark(text) for text in ("مرحبا بالعالم", "السلام عليكم ورحمة الله وبركاته", "اللغة العربية من أكثر اللغات انتشارا")]


def ddddocr() -> Any:
    """Letters in pictures: an LSTM in both directions behind convolutions."""
    import ddddocr
    from PIL import Image, ImageDraw, ImageFont

    reader, found = ddddocr.DdddOcr(beta=True, show_ad=False), []
    for text in ("AB12", "help", "7x9Kq"):
        picture, file = Image.new("RGB", (160, 60), "white"), io.BytesIO()
        ImageDraw.Draw(picture).text((15, 8), text, fill="black", font=ImageFont.load_default(36))
        picture.save(file, "PNG")
        found.append(reader.classification(file.getvalue()))
    assert found == ["AB12", "help", "7x9Kq"], found
    return found


def faster_whisper() -> Any:
    """When somebody speaks: an LSTM, many chunks at once."""
    from faster_whisper.vad import get_speech_timestamps, get_vad_model

    samples = sound()
    return [get_vad_model()(samples[:samples.size // 512 * 512]), get_speech_timestamps(samples)]


def pipecat() -> Any:
    """When somebody speaks: LSTMs in If, their state carried from chunk to chunk."""
    import pipecat.audio.vad.silero as vad

    samples, network = sound(), vad.SileroOnnxModel(str(Path(vad.__file__).parent / "data/silero_vad.onnx"))
    return [np.ravel(network(samples[None, start:start + 512], 16000)) for start in range(0, samples.size - 511, 512)]


def on_the_device() -> list[object]:
    """Have sessions of vkdml.onnx run on the device, whatever providers the packages name. Returns the list of those made."""
    import vkdml.onnx

    made: list[object] = []

    class OnDevice(vkdml.onnx.InferenceSession):
        def __init__(self, path: Any, sess_options: Any = None, providers: Any = None, **others: Any) -> None:
            super().__init__(path, sess_options, ["VkdmlExecutionProvider", "CPUExecutionProvider"], **others)
            made.append(self)

    vkdml.onnx.InferenceSession = OnDevice  # type: ignore[misc, assignment]
    return made


if __name__ == "__main__":
    sessions = on_the_device() if os.environ["PYTHONPATH"] else []
    Path(sys.argv[2]).write_bytes(pickle.dumps((globals()[sys.argv[1]](), bool(sessions))))
