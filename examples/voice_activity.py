"""Finds where somebody speaks with Silero VAD: a network with an LSTM in If nodes. It runs on one chunk of sound after the
other and carries its state from call to call. One stream: a CPU is as fast. A GPU pays for many of them, as rows of a batch.

    python examples/voice_activity.py [speech.wav]

Needs: pip install 'vkdml[onnx]'; pip install --no-deps silero-vad==6.2.3 (MIT); espeak-ng if no WAV file is given.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import speech
from installed import file_in_package

from vkdml.onnx import InferenceSession

CHUNK, CONTEXT = 512, 64  # samples: of a chunk, and of the end of the chunk before, which the network needs again


def probabilities(session: Any, samples: np.ndarray) -> np.ndarray:
    """The probability of speech in each chunk of 32 ms."""
    state = np.zeros((2, 1, 128), np.float32)
    context = np.zeros((1, CONTEXT), np.float32)
    found = []
    for start in range(0, len(samples) - CHUNK + 1, CHUNK):
        chunk = np.concatenate([context, samples[None, start:start + CHUNK]], axis=1)
        probability, state = session.run(None, {"input": chunk, "state": state, "sr": np.array(speech.RATE)})
        context = chunk[:, -CONTEXT:]
        found.append(probability.item())
    return np.array(found)


def segments(found: np.ndarray) -> list[tuple[float, float]]:
    """The start and end of each stretch of speech, in seconds. found: the probability in each chunk."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], found > 0.5, [0]])))
    return [(start * CHUNK / speech.RATE, end * CHUNK / speech.RATE) for start, end in zip(edges[::2], edges[1::2])]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Finds speech with Silero VAD on a Vulkan device.")
    parser.add_argument("wav", nargs="?", type=Path, help="16-bit WAV file; by default espeak-ng speaks")
    samples = speech.load(parser.parse_args(arguments).wav)
    path = file_in_package("silero_vad", "6.2.3", "data/silero_vad.onnx")
    session = InferenceSession(path)
    probabilities(session, samples[:CHUNK])  # the first run compiles
    started = time.perf_counter()
    found = probabilities(session, samples)
    milliseconds = (time.perf_counter() - started) / len(found) * 1e3
    difference = np.abs(found - probabilities(onnxruntime.InferenceSession(path), samples)).max()
    for start, end in segments(found):
        print(f"speech from {start:.2f} s to {end:.2f} s")
    if not segments(found):
        print("no speech")
    print(f"{session.device.info.name}: {milliseconds:.2f} ms for a chunk of {CHUNK / speech.RATE * 1e3:.0f} ms; "
          f"largest difference from onnxruntime alone: {difference:.1e}")
    return {"segments": segments(found), "difference": difference, "seconds": len(samples) / speech.RATE}


if __name__ == "__main__":
    main()
