"""PyTorch's recurrent modules on a Vulkan device, for inference. Needs the extra `torch`.

`convert` replaces the recurrent modules of a model by twins that run on the device. Tensors between the layers of a module stay
on the device.

Sources: torch.nn.GRU, LSTM, RNN, GRUCell, LSTMCell and RNNCell.
"""

from ...errors import MissingPackageError, install_line

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingPackageError(f"vkdml.torch needs the package torch: {install_line('torch')}") from None

from .modules import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell, convert, refresh, unconvert, warm_up
from .torch_operators import onnx_translations

__all__ = ["convert", "unconvert", "warm_up", "refresh", "onnx_translations",  # noqa: RUF022  (as the documentation shows them)
           "GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]
