"""Speech for the examples: a WAV file, or a sentence spoken by espeak-ng."""

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
    """Samples from -1 to 1, at 16 kHz, of one channel. Without a path: half a second of silence, a sentence, silence again.

    Raises SystemExit if the file cannot be read, or if espeak-ng is missing.
    """
    if path is not None:
        try:
            return read(path.read_bytes())
        except (OSError, ValueError) as error:
            raise SystemExit(f"{path}: {error}") from None
    if shutil.which("espeak-ng") is None:
        raise SystemExit("give a WAV file, or let espeak-ng speak: apt-get install espeak-ng")
    said = read(subprocess.run(["espeak-ng", "--stdout", SENTENCE], capture_output=True, check=True).stdout)
    silence = np.zeros(RATE // 2, np.float32)
    return np.concatenate([silence, said / np.abs(said).max() * np.float32(0.5), silence])


def read(data: bytes) -> np.ndarray:
    """The first channel of a 16-bit WAV file, resampled to 16 kHz. Raises ValueError for other data."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate, frames = file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()
            content = file.readframes(frames)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"not a WAV file with integer samples ({str(error) or 'it ends too early'})") from None
    if width != 2 or frames < rate / 10:
        raise ValueError(f"{8 * width} bits a sample, {frames} samples; expected 16 bits, and a tenth of a second or more")
    samples = np.frombuffer(content, "<i2")[::channels] / np.float32(32768)
    times = np.arange(int(len(samples) * RATE / rate)) * (rate / RATE)
    return np.interp(times, np.arange(len(samples)), samples).astype(np.float32)


def write(path: Path, samples: np.ndarray) -> None:
    """Write samples from -1 to 1 as a 16-bit WAV file at 16 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
