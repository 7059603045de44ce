"""Speech for the examples: WAV files, or a sentence spoken by espeak-ng."""

from __future__ import annotations

import io
import shutil
import subprocess
import wave
from pathlib import Path

import numpy as np

RATE = 16000  # samples a second
SENTENCE = "Recurrent networks run on every graphics card now."
VOICES = "en", "en+f3", "en-us+m4"  # espeak-ng's


def load(path: Path | None, voice: str = VOICES[0]) -> np.ndarray:
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
    said = read(subprocess.run(["espeak-ng", "-v", voice, "--stdout", SENTENCE], capture_output=True, check=True).stdout)
    silence = np.zeros(RATE // 2, np.float32)
    return np.concatenate([silence, said / np.abs(said).max() * np.float32(0.5), silence])


def recordings(folder: Path | None) -> dict[str, np.ndarray]:
    """The samples of each WAV file in a folder, by its name. Without a folder: the sentence in three voices.

    Raises SystemExit if there is no file, or as `load` does.
    """
    if folder is None:
        return {voice: load(None, voice) for voice in VOICES}
    return {path.name: load(path) for path in wav_files(folder)}


def wav_files(folder: Path) -> list[Path]:
    """The WAV files in a folder, in order of their names. Raises SystemExit if there is none."""
    found = sorted(folder.glob("*.wav"))
    if not found:
        raise SystemExit(f"{folder}: no .wav file")
    return found


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
    samples = from_pcm(content)[::channels]
    times = np.arange(int(len(samples) * RATE / rate)) * (rate / RATE)
    return np.interp(times, np.arange(len(samples)), samples).astype(np.float32)


def write(path: Path, samples: np.ndarray) -> None:
    """Write samples from -1 to 1 as a 16-bit WAV file at 16 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(to_pcm(samples))


def from_pcm(data: bytes) -> np.ndarray:
    """Samples from -1 to 1, of 16-bit integers."""
    return np.frombuffer(data, "<i2") / np.float32(32768)


def to_pcm(samples: np.ndarray) -> bytes:
    """16-bit integers, of samples from -1 to 1."""
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
