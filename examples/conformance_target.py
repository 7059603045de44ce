"""A function that `vkdml conformance` tests as another library: an RNN in numpy, for what it can compute.

    cd examples && vkdml conformance --target python:conformance_target.compute
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def compute(op: str, attributes: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute a node. All names are ONNX's; attributes that are left out have ONNX's defaults."""
    if op != "RNN" or not set(inputs) <= {"X", "W", "R", "B"} or attributes["direction"] != "forward" or any(
            attributes[name] not in (None, 0) for name in ("activations", "clip", "layout")):
        raise NotImplementedError  # unsupported, which is no mistake; another exception is a refusal
    x, w, r, b = (inputs.get(name, np.zeros((1, 2))) for name in ("X", "W", "R", "B"))
    states = [np.zeros((x.shape[1], attributes["hidden_size"]), x.dtype)]
    for step in x:
        states.append(np.tanh(step @ w[0].T + states[-1] @ r[0].T + sum(np.split(b[0], 2))))
    return {"Y": np.array(states)[1:, None], "Y_h": states[-1][None]}
