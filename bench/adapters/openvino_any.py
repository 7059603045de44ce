"""OpenVINO on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino

from bench.cases import Case
from bench.models import OUTPUTS, STATE_INPUTS, feeds, make_model
from bench.runner import Runner, UnavailableError, most_alike, zero_arrays


class Library:
    """OpenVINO on the device, CPU or GPU, that is named most like `name`."""

    def __init__(self, device: str = "CPU", name: str = "") -> None:
        self._core = openvino.Core()
        names = {one: self._core.get_property(one, "FULL_DEVICE_NAME") for one in self._core.available_devices
                 if one.split(".")[0] == device}
        if not names:
            raise UnavailableError(f"OpenVINO lists no {device}: it has {', '.join(self._core.available_devices)}")
        self._device = most_alike(names, name)
        self.description = {"version": openvino.__version__.split("-")[0], "device": names[self._device]}

    def prepare(self, case: Case) -> dict[str, Runner]:
        # By default it may compute in bfloat16 or float16 where the device has them.
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        model = self._core.read_model(make_model(case))
        request = self._core.compile_model(model, self._device, options).create_infer_request()
        given = feeds(case)

        def call(*states: np.ndarray) -> Sequence[Any]:
            results = request.infer({**given, **dict(zip(STATE_INPUTS, states))})
            return [results[name] for name in OUTPUTS[:len(results)]]

        return {"host": Runner(case, call, lambda: zero_arrays(case), list)}
