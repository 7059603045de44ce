"""The adapter for OpenVINO, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import openvino

from vkdml_lab.bench.adapters.library import Call, OnnxLibrary
from vkdml_lab.bench.nodes import Node
from vkdml_lab.bench.runner import UnsupportedError, most_alike
from vkdml_lab.processes import UnavailableError

# By default it may compute in bfloat16 or float16
OPTIONS = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}


class Library(OnnxLibrary):
    """OpenVINO on a device. device: CPU or GPU. name: if there are several, the one with the most similar name is used."""

    def __init__(self, device: str = "CPU", name: str = "") -> None:
        self._core = openvino.Core()
        names = {one: self._core.get_property(one, "FULL_DEVICE_NAME") for one in self._core.available_devices
                 if one.split(".")[0] == device}
        if not names:
            raise UnavailableError(f"OpenVINO lists no {device}: it has {', '.join(self._core.available_devices)}")
        self._device = most_alike(names, name)
        self.description = {"version": openvino.__version__.split("-")[0], "device": names[self._device]}
        self.lines = ("import openvino\ndef run(model, arrays):\n    model = openvino.Core().read_model(model)\n"
                      f'    return [*openvino.compile_model(model, "{self._device}", {OPTIONS})(arrays).values()]\n')

    def load(self, node: Node) -> Call:
        if node.element == "bfloat16":
            raise UnsupportedError("bfloat16: OpenVINO's Python has no array of it")
        request = self._core.compile_model(self._core.read_model(node.model()), self._device, OPTIONS).create_infer_request()

        def call(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            results = request.infer(dict(feeds))
            return [results[name] for name in node.outputs]

        return call
