"""Measures the time from a process's start to its first GRU result, with Mesa's cache of compiled shaders on and off."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

import vkdml
from vkdml_lab.bench.peers import Peer
from vkdml_lab.bench.processes import Process
from vkdml_lab.processes import WorkerError

RUNS = 3


class Library:
    """Computes one GRU when it is made, so that a worker's command "open" ends with the first result."""

    def __init__(self, device: int) -> None:
        rng = np.random.default_rng(0)
        shapes = [(10, 1, 256), (1, 3 * 256, 256), (1, 3 * 256, 256), (1, 6 * 256)]
        vkdml.gru(*(rng.standard_normal(shape, np.float32) * np.float32(0.1) for shape in shapes), device=device)
        self.description: dict[str, str] = {}


def measure(device: int) -> dict[str, Any]:
    """Return median seconds to a first result with "shader cache off" (Mesa's) and with "shader cache on", or an "error"."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"MESA_SHADER_CACHE_DIR": folder, "MESA_SHADER_CACHE_DISABLE": "false"}
        try:
            _seconds(device, kept)  # fills the cache
            return {"shader cache off": median(_seconds(device, {"MESA_SHADER_CACHE_DISABLE": "true"}) for _ in range(RUNS)),
                    "shader cache on": median(_seconds(device, kept) for _ in range(RUNS))}
        except WorkerError as error:
            return {"error": str(error)}


def _seconds(device: int, environment: Mapping[str, str]) -> float:
    process = Process(Peer("first result", "vkdml_lab.bench.first_result", {"device": device}, environment))
    started = time.perf_counter()
    try:
        process.open()
        return time.perf_counter() - started
    finally:
        process.close()
