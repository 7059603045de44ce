"""The interface of onnx.backend.base.Backend, which onnx's own tests call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ...engine.vulkan.gpu import select_device
from ...errors import DriverError, InvalidArgumentError
from .models import Source
from .nodes import named_device, run_node
from .session import InferenceSession


class PreparedModel(BackendRep):
    """A model that is ready to run. Made by `prepare`."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: np.ndarray | Sequence[Any] | Mapping[Any, Any], **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        inputs: arrays by name, or in the order of the model's inputs without those that have an initializer; or the only one,
            which is an array, or a dictionary for an input that is a map.
        Returns a named tuple of the model's outputs. Raises what `InferenceSession.run` raises.
        """
        args = self._session.get_inputs()
        names = [arg.name for arg in args]
        if len(args) == 1:
            is_map = args[0].type.startswith("map(") and isinstance(inputs, Mapping) and list(inputs) != names
            inputs = [inputs] if is_map or isinstance(inputs, np.ndarray) else inputs
        if not isinstance(inputs, Mapping):
            if not isinstance(inputs, Sequence):
                raise InvalidArgumentError("run", "inputs", type(inputs).__name__, "a list of arrays, or a dictionary by name")
            if len(inputs) != len(names):
                raise InvalidArgumentError("run", "inputs", f"{len(inputs)} arrays", f"{len(names)}: {', '.join(names)}")
            inputs = dict(zip(names, inputs))
        outputs = [value.name for value in self._session.get_outputs()]
        return namedtupledict("Outputs", outputs)(*self._session.run(None, inputs))


class VulkanBackend(Backend):
    """An onnx.backend.base.Backend: recurrent nodes run on a Vulkan device, all other nodes in onnxruntime on the CPU."""

    @classmethod
    def prepare(cls, model: Source | InferenceSession | PreparedModel, device: Any = "CPU", **kwargs: Any) -> PreparedModel:
        """Check a model and make it ready to run, unless it is. Raises what `InferenceSession` raises.

        model: a ModelProto, a file's path, or bytes; or a session, which stays on its device.
        """
        if isinstance(model, PreparedModel):
            return model
        if isinstance(model, InferenceSession):
            return PreparedModel(model)
        if not isinstance(model, str | bytes | os.PathLike | onnx.ModelProto):
            raise InvalidArgumentError("prepare", "model", type(model).__name__,
                                       "an onnx.ModelProto, a path, bytes or a session")
        if isinstance(model, onnx.ModelProto):
            try:
                super().prepare(model, device, **kwargs)
            except (onnx.checker.ValidationError, ValueError) as error:  # ValueError: text that is not UTF-8
                raise InvalidArgumentError("prepare", "model", str(error), "a valid onnx.ModelProto") from None
        return PreparedModel(InferenceSession(model, device=named_device(device)))

    run_node = staticmethod(run_node)  # type: ignore[assignment]  # its device may be a Device

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for what Device() takes, and for "CPU", which means the default device here."""
        is_name = isinstance(device, str)
        if is_name and device.startswith("CUDA"):
            return False
        try:
            select_device(None if is_name and device.startswith("CPU") else device)
        except (DriverError, InvalidArgumentError):
            return False
        return True


prepare = VulkanBackend.prepare
run_model = VulkanBackend.run_model
supports_device = VulkanBackend.supports_device
is_compatible, run = VulkanBackend.is_compatible, run_model  # names of onnxruntime.backend
