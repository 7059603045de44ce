"""Reads the cases that `vkdml conformance --export FOLDER` writes, with numpy and ml_dtypes alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
Check = Callable[[Mapping[str, np.ndarray]], list[str]]


def cases(folder: str | Path) -> Iterator[tuple[str, dict[str, Any], dict[str, np.ndarray], Check]]:
    """Yield operator, attributes, inputs, and a function from outputs by name to the names of those that are wrong."""
    listed = json.loads((Path(folder) / "cases.json").read_text())
    assert listed["format"] == 1
    for case in listed["cases"]:
        arrays = dict(np.load(Path(folder) / f"{case['name']}.npz"))
        inputs = {name: arrays[name] for name in INPUTS if name in arrays}
        if case["element"] == "bfloat16":
            inputs |= {name: array.view(ml_dtypes.bfloat16) for name, array in inputs.items() if name != "sequence_lens"}

        def wrong(outputs: Mapping[str, np.ndarray], arrays: dict[str, np.ndarray] = arrays) -> list[str]:
            names = [name.removeprefix("expected_") for name in arrays if name.startswith("expected_")]
            found = {name: np.asarray(outputs[name]).astype(np.float64) for name in names}
            off = {name: np.abs(found[name] - arrays[f"expected_{name}"]) > arrays[f"bound_{name}"] for name in names}
            odd = {name: np.isnan(found[name]) != np.isnan(arrays[f"expected_{name}"]) for name in names}
            return [name for name in names if ((off[name] | odd[name]) & arrays[f"judged_{name}"]).any()]

        yield case["op"], case["attributes"], inputs, wrong
