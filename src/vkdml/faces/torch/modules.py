"""Twins of PyTorch's recurrent modules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ...engine.vulkan.driver import calls
from ...errors import TorchArgumentError, shown
from ..directml.device import Device
from ..sessions import open_device, shapes_to_warm_up
from .stacks import Form, Shape
from .torch_operators import OPERATORS, OperatorCall, States, check_lengths, compiled_for, untraced
from .training import run_layers
from .transfers import why_not_shared

Training = Literal["refuse", "torch", "device"]
_INTS = int, np.integer


class Twin(nn.Module):
    """A recurrent module on a Vulkan device: the first base of a class that has PyTorch's module as another.

    _module: the name of PyTorch's class. _vulkan_device: the device that `convert` was given, _vulkan_index its index then; -1:
    the default device, which the first call opens.
    _trains: the argument `training` of `convert`.
    """

    _module: str
    _vulkan_device: Device | int | str | None
    _vulkan_index: int
    _trains: Training

    def __init_subclass__(cls) -> None:
        cls._module = next(base.__name__ for base in cls.__mro__ if base.__module__ == nn.GRU.__module__)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TorchArgumentError(f"vkdml.torch.{self._module}", "class", "a call", f"convert(torch.nn.{self._module}(...))")

    @property
    def vulkan_device(self) -> int:
        """The index of the device."""
        device = self._vulkan_device
        return (device if isinstance(device, Device) else open_device(self._module, device)).info.index

    def _runs_on_cpu(self) -> bool:
        """Whether PyTorch's own forward runs: for training, and for the tracing ONNX exporter, which needs its operators."""
        if (self.training and self._trains == "torch") or (torch.jit.is_tracing() and torch.onnx.is_in_onnx_export()):
            return True
        if self.training and self._trains == "refuse":
            raise TorchArgumentError(self._module, "training", True, "False: call .eval() first; or convert(..., "
                                     "training=\"device\" or \"torch\"), which trains on the device or by PyTorch")
        return False

    def _weights(self) -> list[Tensor]:
        """List all weights, in PyTorch's order."""
        of_cell = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * bool(self.bias)
        own, parameters = vars(self), self._parameters  # getattr looks into both, but is slow
        names = own.get("_flat_weights_names", of_cell)
        weights = [parameters[name] if name in parameters and name not in own else getattr(self, name, None) for name in names]
        for name, weight in zip(names, weights):
            if not isinstance(weight, Tensor):
                raise TorchArgumentError(self._module, name, type(weight).__name__, "a parameter")
        return weights

    def _form(self) -> Form:
        """Read the module's settings. A cell counts as one layer."""
        get, mode = vars(self).get, self._module.removesuffix("Cell")
        if mode == "RNN":
            mode = self.mode if self._module == "RNN" else f"RNN_{self.nonlinearity.upper()}"  # as PyTorch's forward reads
        sizes = self.input_size, self.hidden_size, get("num_layers", 1), get("bidirectional", False)
        for name, value in zip(Form._fields[2:], sizes):
            if not isinstance(value, _INTS):
                raise TorchArgumentError(self._module, name, shown(value), "what PyTorch made it")
        input_size, hidden_size, num_layers, bidirectional = map(int, sizes)
        return Form(mode, self._module, input_size, hidden_size, num_layers, bool(bidirectional))

    def warm_up(self, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1, *, hx: bool = False,
                packed: bool = False) -> None:
        """Pack the parameters and compile for calls with these lengths and batches, so that the calls compile nothing.

        Lengths and batches of about the same size share what is compiled, so a few of them are enough for a range.

        Args:
            T: time steps: a number, or several, such as range(10, 200, 10). A cell has one, whatever T says.
            B: batch rows: likewise. Each length is prepared with each batch size.
            hx: whether the calls will give initial states.
            packed: whether they will give PackedSequences or lengths.

        Raises:
            TorchArgumentError: no T, no whole number from 1, or a module in training mode or on another device.
            DriverError: the driver failed.
        """
        is_cell = isinstance(self, nn.RNNCellBase)
        shapes = shapes_to_warm_up(self._module, 1 if is_cell else T, B)
        if self.training:
            raise TorchArgumentError(self._module, "warm_up: training", True, "False: call .eval() first. It compiles for "
                                     "inference; the first step of training compiles what training needs")
        form, weights, compiled = self._form(), self._weights(), compiled_for(self, self._vulkan_device)
        for t, b in shapes:
            with compiled.lock:
                compiled.parameters.update(form, weights)
                compiled.stack(form, Shape(t, b, weights[0].dtype, hx, packed and not is_cell)).execution.prepare({})

    def _call(self, call: OperatorCall) -> States:
        with calls:
            return call.run_with(compiled_for(self, self._vulkan_device))

    def set_device(self, device: Device | int | str | None, index: int) -> None:
        """Run on this device from now on: a Device, or an argument of Device(). index: its index; -1: the default device."""
        self._vulkan_device, self._vulkan_index = device, index
        self.__module__ = "torch.nn"  # so that torch.fx.symbolic_trace treats it as a leaf

    def forget_device(self) -> None:
        """Remove the attributes that PyTorch's module does not have."""
        del self._vulkan_device, self._vulkan_index, self._trains, self.__module__

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what Module.compile() made, which computes with this object's parameters, as other modules do."""
        return {name: value for name, value in super().__getstate__().items() if name != "_compiled_call_impl"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what earlier versions saved, too."""
        trains = "torch" if state.get("_trains_on_cpu") else "refuse"
        super().__setstate__({"_trains": trains} | {name: value for name, value in state.items() if name != "_trains_on_cpu"})

    def _replicate_for_data_parallel(self) -> Any:
        if self.training and self._trains == "device":
            raise TorchArgumentError(self._module, "training on the device, DataParallel", "several devices", "one, or "
                                     "DistributedDataParallel, with a process for each")
        return super()._replicate_for_data_parallel()

    def __prepare_scriptable__(self) -> Any:
        raise TorchArgumentError(self._module, "torch.jit.script", "a converted module", "torch.jit.trace or torch.export")

    def extra_repr(self) -> str:
        text, device = f"{super().extra_repr()}, vulkan_device={self.vulkan_device}", self._weights()[0].device
        if device.type == "cpu":
            return text
        opened = open_device(self._module, self._vulkan_device)
        reason = why_not_shared(opened.gpu, opened.share, device)
        return f"{text}, tensors through " + (f"the host: {reason}" if reason else "shared memory")

    def _run(self, input: Tensor, states: Iterable[Tensor], batch_sizes: Tensor | None = None, lengths: Tensor | None = None
             ) -> tuple[Tensor, States]:
        """Run input: [T, B, I], or a PackedSequence's data. Returns y and the last states, [layers * D, B, H] each."""
        form, index = self._form(), self._vulkan_index
        call = OperatorCall(form.mode, input, list(states), self._weights(), batch_sizes, *form[1:], index, lengths)
        if self.training:
            y, *last = untraced(run_layers)(call, compiled_for(self, self._vulkan_device), vars(self).get("dropout", 0.0))
            return y, tuple(last)
        y, *last = OPERATORS[form.mode](*call[1:]) if torch.compiler.is_compiling() else untraced(Twin._call)(self, call)
        return y, tuple(last)

    def _states(self, hx: Any) -> States:
        """Return the initial states in hx: none, or h, and for an LSTM c."""
        if hx is None:
            return ()
        states = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        count = 2 if self._module.startswith("LSTM") else 1
        if len(states) != count or not all(isinstance(state, Tensor) for state in states):
            found = ", ".join(type(state).__name__ for state in states) or "none"
            raise TorchArgumentError(self._module, "hx", found, "a Tensor" if count == 1 else f"{count} Tensors")
        return states

    def _is_batched(self, input: Any, states: States, *allowed: int) -> bool:
        """Whether an input has a batch. Refuses numbers of dimensions that are not allowed; the operator refuses sizes."""
        if not isinstance(input, Tensor) or input.is_nested:
            found = "a nested Tensor" if isinstance(input, Tensor) else type(input).__name__
            raise TorchArgumentError(self._module, "input", found, "a dense Tensor" + " or a PackedSequence" * (2 in allowed))
        if input.dim() not in allowed:
            raise TorchArgumentError(self._module, "input", f"{input.dim()} dimensions", " or ".join(map(str, allowed)))
        for k, state in enumerate(states):
            if state.dim() != input.dim():
                raise TorchArgumentError(self._module, f"hx[{k}]", f"{state.dim()} dimensions", f"the input's {input.dim()}")
        return input.dim() == allowed[1]


class _Sequence(Twin, nn.RNNBase):
    """The base of the twins of GRU, LSTM and RNN."""

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> Any:
        """Run as PyTorch's module does. With lengths, results are those of a PackedSequence with these.

        lengths: the time steps of each row, from 0 to T: a Tensor or list of B whole numbers. y is zero past a row's length,
        and the last states are those after its last step: zero for a row of length 0.
        """
        if lengths is not None:
            lengths = self._checked_lengths(input, lengths)
        if self._runs_on_cpu():
            return super().forward(input, hx) if lengths is None else self._packed_on_cpu(input, hx, lengths)
        run = self._run_packed if isinstance(input, PackedSequence) else partial(self._run_padded, lengths=lengths)
        y, last = run(input, self._states(hx))
        return y, last if len(last) > 1 else last[0]

    def _run_padded(self, input: Any, states: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        if not self._is_batched(input, states, 2, 3):
            y, last = self._run(input.unsqueeze(1), (state.unsqueeze(1) for state in states))
            return y.squeeze(1), tuple(state.squeeze(1) for state in last)
        y, last = self._run(input.transpose(0, 1) if self.batch_first else input, states, lengths=lengths)
        return y.transpose(0, 1) if self.batch_first else y, last

    def _run_packed(self, input: PackedSequence, states: States) -> tuple[PackedSequence, States]:
        """Run a PackedSequence. Its rows are sorted by length: `order` is the permutation to that order, `back` its inverse."""
        data, batch_sizes, order, back = input
        if order is not None and not torch.compiler.is_compiling():
            self._check_order(batch_sizes, order, back)
        for k, state in enumerate(states if order is not None else ()):
            if state.dim() != 3 or state.shape[1] != order.shape[0]:
                raise TorchArgumentError(self._module, f"hx[{k}]", f"the shape {tuple(state.shape)}", f"{order.shape[0]} rows")
        y, last = self._run(data, _permuted(states, order), batch_sizes)
        return PackedSequence(y, batch_sizes, order, back), _permuted(last, back)

    def _check_order(self, batch_sizes: Tensor, *orders: Any) -> None:
        are_rows = all(isinstance(of, Tensor) and not of.is_meta and (of.dtype, of.dim()) == (torch.int64, 1) for of in orders)
        order, back = [one.tolist() for one in orders] if are_rows else ([], [])
        if not sorted(order) == sorted(back) == list(range(len(order))) == [order[row] for row in back] or (
                batch_sizes[:1].tolist() != [len(order)]):
            raise TorchArgumentError(self._module, "sorted_indices", orders[0], "an order of the rows, and unsorted_indices "
                                     "its inverse")

    def _checked_lengths(self, input: Any, lengths: Any) -> Tensor:
        """Convert lengths to a Tensor. The operator checks its values."""
        if not isinstance(input, Tensor) or input.dim() != 3:
            raise TorchArgumentError(self._module, "lengths", shown(lengths), "None, or an input with 3 dimensions")
        try:
            made = torch.as_tensor(lengths, device=None if isinstance(lengths, Tensor) else "cpu")
        except (TypeError, ValueError, RuntimeError):
            raise TorchArgumentError(self._module, "lengths", shown(lengths), "a list or Tensor of whole numbers") from None
        return made if made.numel() else made.long()  # an empty list gives no integers

    def _packed_on_cpu(self, input: Tensor, hx: Any, lengths: Tensor) -> Any:
        """Run PyTorch's forward. It packs no row of length 0, so such a row gets one step, whose results are set to zero."""
        steps, rows = input.shape[:2][::-1] if self.batch_first else input.shape[:2]
        check_lengths(self._module, lengths, steps, rows, input.device, is_fake=torch.jit.is_tracing())
        lengths = lengths.cpu()
        has_steps = (lengths > 0)[:, None].to(input.device)
        of_padded = has_steps[:, None] if self.batch_first else has_steps
        input = input.masked_fill(~of_padded, 0)
        y, last = super().forward(pack_padded_sequence(input, lengths.clamp(min=1), self.batch_first, enforce_sorted=False), hx)
        y, _ = pad_packed_sequence(y, self.batch_first, total_length=steps)
        return y * of_padded, tuple(state * has_steps for state in last) if isinstance(last, tuple) else last * has_steps


def _permuted(states: States, order: Tensor | None) -> States:
    return states if order is None else tuple(state.index_select(1, order) for state in states)


class GRU(_Sequence, nn.GRU):
    """torch.nn.GRU on a Vulkan device. Made by `convert`."""


class LSTM(_Sequence, nn.LSTM):
    """torch.nn.LSTM on a Vulkan device. Made by `convert`."""


class RNN(_Sequence, nn.RNN):
    """torch.nn.RNN on a Vulkan device. Made by `convert`."""


class _Single(Twin, nn.RNNCellBase):
    """The base of the twins of GRUCell, LSTMCell and RNNCell, which run a sequence of one step."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        if self._runs_on_cpu():
            return super().forward(input, hx)
        states = self._states(hx)
        is_batched = self._is_batched(input, states, 1, 2)
        x, *before = (tensor[None] if is_batched else tensor[None, None] for tensor in (input, *states))
        last = tuple(state[0] if is_batched else state[0, 0] for state in self._run(x, before)[1])
        return last if len(last) > 1 else last[0]


class GRUCell(_Single, nn.GRUCell):
    """torch.nn.GRUCell on a Vulkan device. Made by `convert`."""


class LSTMCell(_Single, nn.LSTMCell):
    """torch.nn.LSTMCell on a Vulkan device. Made by `convert`."""


class RNNCell(_Single, nn.RNNCell):
    """torch.nn.RNNCell on a Vulkan device. Made by `convert`."""


TWINS: dict[type[nn.Module], type[nn.Module]] = {
    nn.GRU: GRU, nn.LSTM: LSTM, nn.RNN: RNN, nn.GRUCell: GRUCell, nn.LSTMCell: LSTMCell, nn.RNNCell: RNNCell}
