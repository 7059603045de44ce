"""PyTorch's twins in the fuzzer. What PyTorch lacks of an operator is left out: its activations are the usual ones, say."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import vkdml.torch
from tests.fuzz.breaking import Argument
from tests.fuzz.calls import Call, Operator
from tests.fuzz.face import Face, Part, device
from vkdml.faces.torch.stacks import to_numpy, to_torch

_ACTIVATIONS = {"GRU": ("SIGMOID", "TANH"), "LSTM": ("SIGMOID", "TANH", "TANH"), "RNN": ("TANH",)}
_GATES = {"GRU": ("zrn", "rzn"), "LSTM": ("iofg", "ifgo"), "RNN": ("h", "h")}  # in DirectML's order, and in PyTorch's
_STATES = ("HiddenInitTensor", "CellMemInitTensor")


class _Call(Call):
    """A call of what PyTorch has of an operator; PackedSequences have no empty rows."""

    @staticmethod
    def of(call: Call) -> _Call:
        operator = call.operator
        directions = operator.directions
        states = set(_STATES) & set(operator.row.inputs) if "HiddenInitTensor" in operator.given else set()
        given = (set(operator.given) & {"BiasTensor", "SequenceLengthsTensor"}) | states
        changed = Operator(operator.cell, operator.inputs, operator.hidden, "bidirectional" if directions == 2 else "forward",
                           tuple((name,) for name in _ACTIVATIONS[operator.cell]) * directions, operator.element,
                           operator.cell == "GRU", None, tuple(sorted(given)))
        return _Call("module", changed, call.steps, call.batch, call.layout, call.growth, call.special, call.strided, call.seed)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        arrays = dict(super().arrays)
        if "SequenceLengthsTensor" in arrays:
            arrays["SequenceLengthsTensor"] = np.maximum(arrays["SequenceLengthsTensor"], 1)
        return arrays

    def tensor(self, field: str) -> torch.Tensor:
        """An input, in the module's shape."""
        array = self.arrays[field][0]
        if self.layout and field == "InputTensor":
            array = array.swapaxes(0, 1)
        return to_torch(np.repeat(array, 2, axis=-1)[..., ::2] if self.strided else np.ascontiguousarray(array))

    def parameters(self) -> dict[str, torch.Tensor]:
        fields = {"WeightTensor": ("weight_ih",), "RecurrenceTensor": ("weight_hh",), "BiasTensor": ("bias_ih", "bias_hh")}
        ours, theirs = _GATES[self.operator.cell]
        made = {}
        for field, names in fields.items():
            by_direction = self.arrays[field][0, 0 if field == "BiasTensor" else slice(None)] if field in self.arrays else ()
            for suffix, array in zip(("", "_reverse"), by_direction):
                for name, part in zip(names, np.split(array, len(names))):
                    gates = dict(zip(ours, np.split(part, len(ours))))
                    made[f"{name}_l0{suffix}"] = to_torch(np.concatenate([gates[gate] for gate in theirs]))
        return made


def _arguments(call: Call) -> dict[str, Argument]:
    made = _Call.of(call)
    states = tuple(made.tensor(field) for field in _STATES if field in made.arrays)
    parameters = {name: Argument(tensor, "module's parameter") for name, tensor in made.parameters().items()}
    return parameters | {
        "input": Argument(made.tensor("InputTensor"), "module's input"),
        "hx": Argument(states or None, "module's states" if states else None),
        "training": Argument(False, "training"), "device": Argument(device(), "device")}


def _run(call: Call, values: dict[str, Any]) -> list[Part]:
    made = _Call.of(call)
    twin = _twin(made, values)
    hx, lengths = values["hx"], made.arrays.get("SequenceLengthsTensor")
    hx = hx[0] if isinstance(hx, tuple) and len(hx) == 1 else hx
    given, is_packed = values["input"], lengths is not None and isinstance(values["input"], torch.Tensor)
    if is_packed and given.dim() == 3 and 0 not in given.shape and given.layout is torch.strided:
        assert lengths is not None
        counts = torch.from_numpy(lengths.reshape(-1).astype(np.int64))
        given = pack_padded_sequence(given, counts, batch_first=bool(made.layout), enforce_sorted=False)
    with torch.no_grad():
        y, last = twin(given, hx)
    if isinstance(given, torch.nn.utils.rnn.PackedSequence):
        y, _ = pad_packed_sequence(y, batch_first=bool(made.layout), total_length=made.steps)
    if made.layout:
        y = y.transpose(0, 1)
    y = to_numpy(y).reshape(made.steps, made.batch, made.operator.directions, -1).swapaxes(1, 2)
    results = [y, *map(to_numpy, last if isinstance(last, tuple) else (last,))]
    outputs = zip(made.operator.row.outputs, results)
    return [Part(made.problem, made.arrays, {field: array.reshape(made.problem.tensor(field).sizes) for field, array in outputs})]


def _twin(call: _Call, values: Mapping[str, Any]) -> torch.nn.Module:
    operator = call.operator
    module = getattr(torch.nn, operator.cell)(
        operator.inputs, operator.hidden, bias="BiasTensor" in call.arrays, batch_first=bool(call.layout),
        bidirectional=operator.directions == 2, device="meta")
    for name in call.parameters():
        setattr(module, name, torch.nn.Parameter(values[name], requires_grad=False))
    module.train(values["training"])
    return vkdml.torch.convert(module, values["device"], inplace=True)


MODULE = Face(lambda operator: True, _arguments, _run, has_layout=True)
