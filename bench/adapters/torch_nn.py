"""PyTorch's torch.nn.GRU and LSTM, on the CPU or a GPU: through cuDNN, MIOpen or oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.cases import Case
from bench.runner import Runner, UnavailableError, most_alike

# For each gate in PyTorch's order (r z n, i f g o), its index in ONNX's order (z r h, i o f c)
GATE_ORDER = {"gru": (1, 0, 2), "lstm": (0, 2, 3, 1)}
MODULES = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}


GPU = "gpu"
KINDS = ("cuda", "xpu", "mps")  # of GPUs; ROCm's name is cuda too


class Library:
    """PyTorch on a device. device: cpu, one of KINDS, or gpu, whichever is here. name: of the GPU, about."""

    def __init__(self, device: str = "cpu", dtype: str = "float32", tf32: bool = False, name: str = "") -> None:
        self._device = _gpu(KINDS if device == GPU else (device,), name) if device != "cpu" else torch.device("cpu")
        if tf32 and self._device.type != "cuda":
            raise UnavailableError("TF32 is CUDA's alone")
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        self._dtype = getattr(torch, dtype)
        self._wait = _nothing if device == "cpu" else getattr(torch, self._device.type).synchronize
        self.description = {"version": torch.__version__, "device": _described(self._device)}

    def prepare(self, case: Case) -> dict[str, Runner]:
        """The CPU has one way: nothing is brought there."""
        ways = self.ways(case)
        return {"host": ways["host"]} if self._device.type == "cpu" else ways

    def ways(self, case: Case) -> dict[str, Runner]:
        call_module = _caller(case, make_module(case).to(self._device, self._dtype))
        x = torch.from_numpy(case.arrays()["X"]).to(self._dtype)
        x_there = x.to(self._device)

        def resident(*states: torch.Tensor) -> Sequence[Any]:
            outputs = call_module(x_there, states)
            self._wait()
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

        done: list[torch.Tensor] = []

        def read() -> Sequence[Any]:
            """Bring Y to the host, again and again, as the one call left it."""
            done[:] = done or resident()
            return [done[0].cpu(), *done[1:]]

        ways = {"host": Runner(case, host, zeros(torch.device("cpu")), to_numpy),
                "device": Runner(case, resident, zeros(self._device), to_numpy)}
        return ways if case.streaming else {**ways, "readback": Runner(case, read, list, to_numpy)}


def _gpu(kinds: Sequence[str], name: str) -> torch.device:
    """The GPU of these kinds that is named most alike."""
    for kind in kinds:
        module = getattr(torch, kind)
        if module.is_available():
            names = {index: getattr(module, "get_device_name", str)(index) for index in range(module.device_count())}
            return torch.device(kind, most_alike(names, name))
    raise UnavailableError(f"this torch, {torch.__version__}, sees no GPU ({', '.join(kinds)})")


def _described(device: torch.device) -> str:
    """A device's name, and what runs recurrent layers on it."""
    if device.type != "cuda":
        return device.type.upper() if device.type != "xpu" else torch.xpu.get_device_name(device)
    runs = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    return f"{torch.cuda.get_device_name(device)}, {runs}, cuDNN {torch.backends.cudnn.version()}"


def _nothing() -> None:
    """A CPU is done when a call returns."""


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
