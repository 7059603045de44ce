"""Speech for the examples: a WAV file of yours, or a sentence that espeak-ng says."""

from __future__ import annotations

import io
import shutil
import subprocess
import wave
from pathlib import Path

import numpy as np

RATE = 16000  # samples a second
SENTENCE = "Recurrent networks run on every graphics card now."


def load(path: Path | None) -> np.ndarray:
    """Samples from -1 to 1 at 16 kHz, one channel. Without a path, half a second of silence, a sentence, and silence again."""
    if path is not None:
        return read(path.read_bytes())
    if shutil.which("espeak-ng") is None:
        raise SystemExit("give a WAV file, or let espeak-ng speak: apt-get install espeak-ng")
    said = read(subprocess.run(["espeak-ng", "--stdout", SENTENCE], capture_output=True, check=True).stdout)
    silence = np.zeros(RATE // 2, np.float32)
    return np.concatenate([silence, said / np.abs(said).max() * np.float32(0.5), silence])


def read(data: bytes) -> np.ndarray:
    """A 16-bit WAV file's first channel, brought to 16 kHz."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")[::channels] / np.float32(32768)
    except (wave.Error, EOFError, ValueError) as error:
        raise SystemExit(f"that is no WAV file: {error}") from None
    if width != 2 or len(samples) < RATE / 10:
        raise SystemExit("the WAV file must have 16 bits a sample, and a tenth of a second or more")
    times = np.arange(int(len(samples) * RATE / rate)) * (rate / RATE)
    return np.interp(times, np.arange(len(samples)), samples).astype(np.float32)


def write(path: Path, samples: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
