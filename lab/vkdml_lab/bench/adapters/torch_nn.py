"""The adapter for PyTorch's torch.nn.GRU, LSTM and RNN, on the CPU or a GPU: through cuDNN, MIOpen or oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vkdml_lab.bench.adapters import torch_gpu
from vkdml_lab.bench.adapters.library import Computes, node_of
from vkdml_lab.bench.cases import QUEUED, Case
from vkdml_lab.bench.nodes import ACTIVATIONS as ONLY
from vkdml_lab.bench.nodes import Node, literal
from vkdml_lab.bench.runner import Runner, UnsupportedError
from vkdml_lab.processes import UnavailableError

# For each gate in PyTorch's order (r z n, i f g o), its index in ONNX's order (z r h, i o f c)
GATE_ORDER = {"gru": (1, 0, 2), "lstm": (0, 2, 3, 1), "rnn": (0,)}
INITIAL = {"GRU": ("initial_h",), "RNN": ("initial_h",), "LSTM": ("initial_h", "initial_c")}
USUAL = {"bias": True, "batch_first": False, "bidirectional": False, "nonlinearity": "tanh"}  # defaults of a module's settings
GPU = "gpu"
WAYS = ("host", "device")  # ways that the benchmark uses


class Library(Computes):
    """PyTorch on a device. device: cpu, one of torch_gpu.KINDS, or gpu for any of them. name: the GPU with the most similar
    name is used. tf32: whether TF32 is allowed; None keeps torch's default.
    """

    def __init__(self, device: str = "cpu", dtype: str = "float32", tf32: bool | None = None, name: str = "") -> None:
        kinds = torch_gpu.KINDS if device == GPU else (device,)
        self._place = torch_gpu.CPU if device == "cpu" else torch_gpu.find(kinds, name)
        if tf32 is not None and not self._place.has_tf32:
            raise UnavailableError("TF32 is CUDA's alone")
        self._tf32 = torch.backends.cudnn.allow_tf32 if tf32 is None else tf32
        self._dtype = getattr(torch, dtype)
        said = f", TF32 {'allowed' if self._tf32 else 'not allowed'}" if self._place.has_tf32 else ""
        self.description = {"version": torch.__version__, "device": self._place.description + said}

    def compute(self, node: Node) -> dict[str, np.ndarray]:
        torch.backends.cudnn.allow_tf32 = False  # results are compared with float64's
        module, is_reverse, is_batch_first = make_module(node), node.get("direction") == "reverse", bool(node.get("layout"))
        call = caller(module.to(self._place.device), node.inputs.get("sequence_lens"), is_batch_first)
        has_states = bool(set(INITIAL[node.op]) & set(node.inputs))
        states = [self._state(node, name, is_reverse) for name in INITIAL[node.op] if has_states]
        y, *last = (output.double().cpu().numpy() for output in call(tensor(node.inputs["X"]).to(self._place.device), states))
        y = y.reshape(*y.shape[:2], 2 if is_reverse else node.directions, node.hidden)
        if is_reverse:
            y, last = y[:, :, 1:], [state[1:] for state in last]
        if not is_batch_first:
            y = y.transpose(0, 2, 1, 3)
        return dict(zip(node.outputs, [y, *(state.swapaxes(0, 1) if is_batch_first else state for state in last)]))

    def _state(self, node: Node, name: str, is_reverse: bool) -> torch.Tensor:
        """Return an initial state as [directions, batch, hidden]. is_reverse: a forward direction of zeros goes before it."""
        array = node.inputs.get(name)
        if array is None:
            array = np.zeros((node.directions, node.batch, node.hidden), node.inputs["X"].dtype)
        elif node.get("layout"):
            array = array.swapaxes(0, 1)
        return tensor(np.concatenate([np.zeros_like(array), array]) if is_reverse else array).to(self._place.device)

    def code(self, node: Node) -> str:
        module = make_module(node)
        settings = [str(node.inputs["X"].shape[2]), str(node.hidden), *(
            f"{name}={getattr(module, name)!r}" for name, usual in USUAL.items() if getattr(module, name, usual) != usual)]
        cast = "" if node.element == "float32" else f", dtype=torch.{node.element}"
        weights = [f"module.{name}.data = torch.tensor({literal(part.detach().double().numpy())}{cast})"
                   for name, part in module.named_parameters()]
        is_reverse, lengths = node.get("direction") == "reverse", node.inputs.get("sequence_lens")
        states = [f"torch.tensor({literal(self._state(node, name, is_reverse).double().cpu().numpy())}{cast})"
                  for name in INITIAL[node.op] if set(INITIAL[node.op]) & set(node.inputs)]
        initial = f", ({', '.join(states)})" if len(states) > 1 else f", {states[0]}" if states else ""
        x = [f"x = torch.tensor({literal(node.inputs['X'])}{cast})"]
        if lengths is not None:
            first = f", batch_first={bool(node.get('layout'))}, enforce_sorted=False"
            x += [f"x = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor({lengths.tolist()}){first})"]
        where = f'.to("{self._place.device.type}")' if self._place.device.type != "cpu" else ""
        return "\n".join(["import torch", f"module = torch.nn.{node.op}({', '.join(settings)}{cast})", *weights, *x,
                          f"print(module{where}(x{where}{initial}))", ""])

    def prepare(self, case: Case) -> dict[str, Runner]:
        return {way: make() for way, make in self.ways(case).items() if way in WAYS}

    def ways(self, case: Case) -> dict[str, Callable[[], Runner]]:
        """Return all ways to call a module, by name: functions that return a Runner. "host" has tensors on the CPU. On a GPU,
        others keep them there: "device" (one call), "queued" (ten calls), "graph" and "graph queued" (a recorded graph of
        these). Each Runner sets TF32 before a sample, as this is a setting of the process.
        """
        place, dtype = self._place, self._dtype
        module = make_module(node_of(case)).to(place.device, dtype)
        call_module = caller(module, case.lengths if case.ragged else None)
        x = torch.from_numpy(case.arrays()["X"]).to(dtype)
        x_there = x.to(place.device)

        def host(*states: torch.Tensor) -> Sequence[Any]:
            y, *last = call_module(x.to(place.device), [state.to(place.device) for state in states])
            return [output.cpu() for output in (y, *last)]

        def on_device(run: Callable[..., Sequence[Any]], calls: int, zeros: Callable[[], list[torch.Tensor]]) -> Runner:
            def call(*states: torch.Tensor) -> Sequence[Any]:
                for _ in range(calls):
                    outputs = run(*states)
                place.wait()
                return outputs

            return Runner(case, call, zeros, to_numpy(case), calls, self._set)

        def recorded(calls: int) -> Runner:
            states, outputs = state_tensors(case, dtype, place.device), list[Any]()

            @torch.inference_mode()
            def work() -> None:
                outputs[:] = call_module(x_there, states)
                for state, last in zip(states, outputs[1:]):  # the next run begins with these
                    state.copy_(last)

            assert place.graph
            self._set()
            run = place.graph(work)
            return on_device(lambda *_: (run(), outputs)[1], calls, lambda: [state.zero_() for state in states])

        ways = {"host": lambda: Runner(case, host, partial(state_tensors, case, dtype), to_numpy(case), before=self._set)}
        if place is torch_gpu.CPU:  # no copies are needed
            return ways
        for calls, way in {1: "", **({} if case.streaming else {QUEUED: "queued"})}.items():
            ways[way or "device"] = partial(on_device, lambda *states: call_module(x_there, states), calls,
                                            partial(state_tensors, case, dtype, place.device))
            if place.graph and not case.ragged:  # the host packs rows of different lengths
                ways[f"graph {way}".rstrip()] = partial(recorded, calls)
        return ways

    def _set(self) -> None:
        if self._place.has_tf32:
            torch.backends.cudnn.allow_tf32 = self._tf32


def make_module(node: Node) -> torch.nn.Module:
    """Return a module with the node's weights and type. A reverse node becomes the second direction of a bidirectional module.
    Raises UnsupportedError if PyTorch has no such module, for example no GRU with linear_before_reset = 0.
    """
    unsupported = [*(["clip"] if node.get("clip") is not None else []), *(["input_forget"] if node.get("input_forget") else []),
                   *(["peepholes"] if "P" in node.inputs else []),
                   *(["linear_before_reset = 0"] if node.op == "GRU" and not node.get("linear_before_reset") else [])]
    kinds = [ONLY[node.op], ("Relu",)] if node.op == "RNN" else [ONLY[node.op]]
    if unsupported or node.activations not in [kind * node.directions for kind in kinds]:
        raise UnsupportedError(f"torch.nn.{node.op} has no {unsupported[0] if unsupported else 'such activations'}")
    settings = {"nonlinearity": node.activations[0].lower()} if node.op == "RNN" else {}
    reverse, w = node.get("direction") == "reverse", node.inputs["W"]
    module: torch.nn.Module = getattr(torch.nn, node.op)(
        w.shape[2], node.hidden, bias="B" in node.inputs, bidirectional=reverse or node.directions == 2,
        batch_first=bool(node.get("layout")), dtype=getattr(torch, node.element), **settings)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for direction, suffix in enumerate(["_reverse"] if reverse else ["", "_reverse"][:node.directions]):
            parts = {"weight_ih": w[direction], "weight_hh": node.inputs["R"][direction]}
            if "B" in node.inputs:
                parts |= dict(zip(("bias_ih", "bias_hh"), np.split(node.inputs["B"][direction], 2)))
            for name, array in parts.items():
                getattr(module, f"{name}_l0{suffix}").copy_(tensor(reorder(node.op.lower(), array)))
    return module.eval()


def tensor(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor of the same type. It may be bfloat16, which torch.from_numpy does not take."""
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array))
    return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)


def reorder(cell: str, array: np.ndarray) -> np.ndarray:
    """Return an array with its rows of gates in PyTorch's order instead of ONNX's. cell: gru, lstm or rnn."""
    gates = array.reshape(len(GATE_ORDER[cell]), -1, *array.shape[1:])
    return gates[list(GATE_ORDER[cell])].reshape(array.shape)


def caller(module: torch.nn.Module, lengths: np.ndarray | None, batch_first: bool = False
            ) -> Callable[[torch.Tensor, Sequence[torch.Tensor]], list[torch.Tensor]]:
    """Return a function that calls the module: from x and initial states to [y, *last states]. lengths: of rows, or None."""

    @torch.inference_mode()
    def call(x: torch.Tensor, states: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given: Any = x
        if lengths is not None:
            given = pack_padded_sequence(x, torch.from_numpy(lengths), batch_first=batch_first, enforce_sorted=False)
        y, last = module(given, tuple(states) if len(states) > 1 else next(iter(states), None))
        if lengths is not None:
            y, _ = pad_packed_sequence(y, batch_first=batch_first, total_length=x.shape[int(batch_first)])
        return [y, *(last if isinstance(last, tuple) else (last,))]

    return call


def state_tensors(case: Case, dtype: torch.dtype, device: torch.device | None = None) -> list[torch.Tensor]:
    """Return the initial states of a case's first call: tensors of zeros."""
    return [torch.zeros(case.state_shape, dtype=dtype, device=device) for _ in range(case.states)]


def to_numpy(case: Case) -> Callable[[Sequence[torch.Tensor]], list[np.ndarray]]:
    """Return a function that converts a module's outputs to numpy arrays in ONNX's shapes."""
    def converted(outputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
        y, *last = (output.float().cpu().numpy() for output in outputs)
        return [y.reshape(case.steps, case.batch, case.directions, case.hidden).transpose(0, 2, 1, 3), *last]

    return converted
