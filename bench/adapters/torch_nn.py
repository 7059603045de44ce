"""PyTorch's torch.nn.GRU and LSTM, on the CPU or through cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.cases import Case
from bench.runner import Runner, UnavailableError

# For each gate in PyTorch's order (r z n, i f g o), its index in ONNX's order (z r h, i o f c)
GATE_ORDER = {"gru": (1, 0, 2), "lstm": (0, 2, 3, 1)}
MODULES = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}


class Library:
    def __init__(self, device: str = "cpu", dtype: str = "float32", tf32: bool = False) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise UnavailableError("no CUDA device, or a build of torch without CUDA")
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        self._device = torch.device(device)
        self._dtype = getattr(torch, dtype)
        name = "CPU" if device == "cpu" else f"{torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}"
        self.description = {"version": torch.__version__, "device": name}

    def prepare(self, case: Case) -> dict[str, Runner]:
        call_module = _caller(case, make_module(case).to(self._device, self._dtype))
        x = torch.from_numpy(case.arrays()["X"]).to(self._dtype)
        on_device = x.to(self._device)
        is_cuda = self._device.type == "cuda"

        def resident(*states: torch.Tensor) -> Sequence[Any]:
            outputs = call_module(on_device, states)
            if is_cuda:
                torch.cuda.synchronize()
            return outputs

        def host(*states: torch.Tensor) -> Sequence[Any]:
            y, *last = call_module(x.to(self._device), [state.to(self._device) for state in states])
            return [output.cpu() for output in (y, *last)]

        def zeros(device: torch.device) -> Callable[[], list[torch.Tensor]]:
            return lambda: [torch.zeros(case.state_shape, dtype=self._dtype, device=device) for _ in range(case.states)]

        def to_numpy(outputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
            y, *last = (output.float().cpu().numpy() for output in outputs)
            directions = y.reshape(case.steps, case.batch, case.directions, case.hidden)
            return [directions.transpose(0, 2, 1, 3), *last]

        runners = {"host": Runner(case, host, zeros(torch.device("cpu")), to_numpy)}
        return runners | ({"device": Runner(case, resident, zeros(self._device), to_numpy)} if is_cuda else {})


def make_module(case: Case) -> torch.nn.Module:
    """A module with the case's weights. PyTorch's GRU is ONNX's with linear_before_reset = 1."""
    module = MODULES[case.cell](case.inputs, case.hidden, bidirectional=case.directions == 2)
    arrays = case.arrays()
    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")[:case.directions]):
            wb, rb = np.split(arrays["B"][direction], 2)
            parts = {"weight_ih": arrays["W"][direction], "weight_hh": arrays["R"][direction], "bias_ih": wb, "bias_hh": rb}
            for name, array in parts.items():
                getattr(module, f"{name}_l0{suffix}").copy_(torch.from_numpy(reorder(case.cell, array)))
    return module.eval()


def reorder(cell: str, array: np.ndarray) -> np.ndarray:
    """An array whose rows are gates in ONNX's order, in PyTorch's order."""
    gates = array.reshape(len(GATE_ORDER[cell]), -1, *array.shape[1:])
    return gates[list(GATE_ORDER[cell])].reshape(array.shape)


def _caller(case: Case, module: torch.nn.Module) -> Callable[[torch.Tensor, Sequence[torch.Tensor]], list[torch.Tensor]]:
    """A function that calls the module and returns y and the last states. Input with different lengths is packed."""
    lengths = torch.from_numpy(case.lengths)

    @torch.inference_mode()
    def call(x: torch.Tensor, states: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given: Any = pack_padded_sequence(x, lengths, enforce_sorted=False) if case.ragged else x
        initial = tuple(states) if len(states) > 1 else next(iter(states), None)
        y, last = module(given, initial)
        if case.ragged:
            y, _ = pad_packed_sequence(y, total_length=case.steps)
        return [y, *(last if isinstance(last, tuple) else (last,))]

    return call
