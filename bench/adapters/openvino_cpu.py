"""OpenVINO on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino

from bench.cases import Case
from bench.models import OUTPUTS, STATE_INPUTS, feeds, make_model
from bench.runner import Runner, zero_arrays


class Library:
    def __init__(self) -> None:
        self._core = openvino.Core()
        self.description = {"version": openvino.__version__.split("-")[0],
                            "device": self._core.get_property("CPU", "FULL_DEVICE_NAME")}

    def prepare(self, case: Case) -> dict[str, Runner]:
        # By default the CPU plugin may compute in bfloat16 or float16 where the processor has them.
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        request = self._core.compile_model(self._core.read_model(make_model(case)), "CPU", options).create_infer_request()
        given = feeds(case)

        def call(*states: np.ndarray) -> Sequence[Any]:
            results = request.infer({**given, **dict(zip(STATE_INPUTS, states))})
            return [results[name] for name in OUTPUTS[:len(results)]]

        return {"host": Runner(case, call, lambda: zero_arrays(case), list)}
