"""DxDispatch's JSON models on a Vulkan device.

    load("dml_rnn.json").run(vkdml.Device(), progress=print)

Source: DxDispatch's guide (microsoft/DirectML).
"""

from .json_models import MAX_BYTES, Dispatched, Model, Printed, Result, Written, load

__all__ = ["MAX_BYTES", "Dispatched", "Model", "Printed", "Result", "Written", "load"]
