"""Finds where somebody speaks in each recording of a folder, with Silero VAD: convolutions, and an LSTM over the windows.

A call takes 64 windows of 32 ms; the LSTM's state goes from call to call, so results are those of one window after the other.

    python examples/voice_activity.py [FOLDER]

Needs: vkdml with its extra onnx; pip install --no-deps silero-vad==6.2.3 (MIT); espeak-ng if no folder is given.
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

MODEL = "silero-vad", "6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx"
WINDOW, CONTEXT = 512, 64  # samples: of a window, and of the end of the window before, which the network needs again
BATCH = 64  # windows in a call


def windows(samples: np.ndarray) -> np.ndarray:
    """All whole windows, each behind its context, [windows, 576]."""
    return np.lib.stride_tricks.sliding_window_view(np.pad(samples, (CONTEXT, 0)), CONTEXT + WINDOW)[::WINDOW]


def probabilities(session: Any, samples: np.ndarray) -> np.ndarray:
    """The probability of speech in each window."""
    rows, found = windows(samples), []
    h = c = np.zeros((1, 1, 128), np.float32)
    for start in range(0, len(rows), BATCH):
        some, h, c = session.run(None, {"input": rows[start:start + BATCH], "h": h, "c": c})
        found.append(some.ravel())
    return np.concatenate(found)


def segments(found: np.ndarray) -> list[tuple[float, float]]:
    """The start and end of each stretch of speech, in seconds. found: the probability in each window."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], found > 0.5, [0]])))
    return [(start * WINDOW / speech.RATE, end * WINDOW / speech.RATE) for start, end in zip(edges[::2], edges[1::2])]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Finds speech in recordings with Silero VAD on a Vulkan device.")
    parser.add_argument("folder", nargs="?", type=Path, help="with 16-bit WAV files; by default espeak-ng speaks")
    recordings = speech.recordings(parser.parse_args(arguments).folder)
    path = file_in_package(*MODEL)
    session, theirs = InferenceSession(path), onnxruntime.InferenceSession(path)
    session.warm_up(T=BATCH)
    found, seconds = [], []
    for one in (session, theirs):
        started = time.perf_counter()
        found.append({name: probabilities(one, samples) for name, samples in recordings.items()})
        seconds.append(time.perf_counter() - started)
    for name, ours in found[0].items():
        print(f"{name}: {', '.join(f'{start:.2f} to {end:.2f} s' for start, end in segments(ours)) or 'no speech'}")
    difference = max(np.abs(ours - found[1][name]).max() for name, ours in found[0].items())
    total = sum(map(len, recordings.values())) / speech.RATE
    print(f"{session.device.info.name}: {total:.1f} s of sound in {seconds[0]:.3f} s; onnxruntime alone: {seconds[1]:.3f} s; "
          f"largest difference: {difference:.1e}")
    return {"segments": {name: segments(ours) for name, ours in found[0].items()}, "found": found[0], "difference": difference}


if __name__ == "__main__":
    main()
