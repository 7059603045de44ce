"""PyTorch's twins in the fuzzer. What PyTorch lacks of an operator is left out: its activations are the usual ones, say."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import vkdml.torch
from vkdml.errors import VkdmlError
from vkdml.faces.torch.stacks import to_numpy, to_torch
from vkdml_lab.fuzz.breaking import Argument
from vkdml_lab.fuzz.calls import Call, Operator
from vkdml_lab.fuzz.face import Face, Part, device, no_work

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
    states = _states(made)
    parameters = {name: Argument(tensor, "module's parameter") for name, tensor in made.parameters().items()}
    return parameters | {
        "input": Argument(made.tensor("InputTensor"), "module's input"),
        "hx": Argument(states, "module's states" if states else None),
        "training": Argument(False, "training"), "device": Argument(device(), "device")}


def _states(made: _Call) -> tuple[torch.Tensor, ...] | None:
    return tuple(made.tensor(field) for field in _STATES if field in made.arrays) or None


def _run(way: Way, call: Call, values: dict[str, Any]) -> list[Part]:
    made = _Call.of(call)
    with torch.no_grad():
        results = way(made, _twin(made, values), *_called(made, values["input"], values["hx"]))
    return [_part(one, *result) for one, result in results]


def _called(made: _Call, given: Any, hx: Any) -> tuple[Any, Any]:
    """What the module is called with: a PackedSequence where there are lengths, and an LSTM's states alone as a tuple."""
    hx = hx[0] if isinstance(hx, tuple) and len(hx) == 1 else hx
    lengths = made.arrays.get("SequenceLengthsTensor")
    is_right = isinstance(given, torch.Tensor) and given.dim() == 3 and 0 not in given.shape and given.layout is torch.strided
    if lengths is not None and is_right:
        counts = torch.from_numpy(lengths.reshape(-1).astype(np.int64))
        given = pack_padded_sequence(given, counts, batch_first=bool(made.layout), enforce_sorted=False)
    return given, hx


def _part(made: _Call, y: Any, last: Any) -> Part:
    if isinstance(y, PackedSequence):
        y, _ = pad_packed_sequence(y, batch_first=bool(made.layout), total_length=made.steps)
    if made.layout:
        y = y.transpose(0, 1)
    y = to_numpy(y).reshape(made.steps, made.batch, made.operator.directions, -1).swapaxes(1, 2)
    results = [y, *map(to_numpy, last if isinstance(last, tuple) else (last,))]
    outputs = zip(made.operator.row.outputs, results)
    return Part(made.problem, made.arrays, {field: array.reshape(made.problem.tensor(field).sizes) for field, array in outputs})


def _twin(call: _Call, values: Mapping[str, Any]) -> torch.nn.Module:
    operator = call.operator
    module = getattr(torch.nn, operator.cell)(
        operator.inputs, operator.hidden, bias="BiasTensor" in call.arrays, batch_first=bool(call.layout),
        bidirectional=operator.directions == 2, device="meta")
    for name in call.parameters():
        setattr(module, name, torch.nn.Parameter(values[name], requires_grad=False))
    module.train(values["training"])
    return vkdml.torch.convert(module, values["device"], inplace=True)


# Ways to call a twin: each returns results, with the call that each is of. The first is refused where something is broken

Results = list[tuple[_Call, Any]]
Way = Callable[[_Call, torch.nn.Module, Any, Any], Results]


def _as_it_is(made: _Call, twin: torch.nn.Module, given: Any, hx: Any) -> Results:
    return [(made, twin(given, hx))]


def _copied(copied: Callable[[torch.nn.Module], torch.nn.Module], made: _Call, twin: torch.nn.Module, given: Any, hx: Any
            ) -> Results:
    """A copy of what was called, and a copy of that: they have nothing in common with the twin, which changes then."""
    result, copy_of_it = twin(given, hx), copied(twin)
    copy_of_copy = copied(copy_of_it)
    for tensor in twin.parameters():
        tensor.zero_()
    return [(made, result), (made, copy_of_it(given, hx)), (made, copy_of_copy(given, hx))]


def _compiled(made: _Call, twin: torch.nn.Module, given: Any, hx: Any) -> Results:
    """With dynamic shapes: other ones follow. PyTorch keeps what it compiled for other twins that are alike."""
    other = _other_shape(made)
    compiled = torch.compile(twin, backend="eager", dynamic=True)
    with torch._dynamo.config.patch(allow_rnn=True, recompile_limit=64):
        try:
            first = compiled(given, hx)
        except torch._dynamo.exc.TorchRuntimeError as error:  # PyTorch's for what it finds itself, and with what an operator refuses
            if not any(text in str(error) for text in ("InvalidArgumentError(", "Tensor device mismatch")):
                raise
            raise VkdmlError(str(error)) from error
        return [(made, first), (other, compiled(*_called(other, other.tensor("InputTensor"), _states(other))))]


def _other_shape(made: _Call) -> _Call:
    return replace(made, steps=made.steps % 7 + 2, batch=made.batch % 5 + 2)


def _transformed(made: _Call, twin: torch.nn.Module, given: Any, hx: Any) -> Results:
    """Forward mode and vmap of any tensor are refused, and nothing of them stays."""
    before = twin(given, hx)
    for tensor, call in _differentiated(twin, given, hx):
        for transform in _TRANSFORMS:
            with no_work():
                try:
                    transform(call, tensor)
                except VkdmlError:
                    continue
                raise AssertionError("a derivative was not refused")
    return [(made, before), (made, twin(given, hx))]


def _differentiated(twin: torch.nn.Module, given: Any, hx: Any) -> Iterator[tuple[torch.Tensor, Callable[[torch.Tensor], Any]]]:
    """Each tensor of a call, and the call as a function of it."""
    if isinstance(given, PackedSequence):
        yield given.data, lambda tensor: twin(PackedSequence(tensor, *given[1:]), hx)
    else:
        yield given, lambda tensor: twin(tensor, hx)
    if isinstance(hx, tuple):
        yield hx[1], lambda tensor: twin(given, (hx[0], tensor))
    elif hx is not None:
        yield hx, lambda tensor: twin(given, tensor)
    for name, parameter in twin.named_parameters():
        yield parameter, partial(_with_parameter, twin, name, (given, hx))


def _with_parameter(twin: torch.nn.Module, name: str, arguments: tuple[Any, ...], tensor: torch.Tensor) -> Any:
    return torch.func.functional_call(twin, {name: tensor}, arguments)


def _in_forward_mode(call: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> None:
    with forward_ad.dual_level():
        call(forward_ad.make_dual(tensor, torch.ones_like(tensor)))


_TRANSFORMS: list[Callable[[Callable[[torch.Tensor], Any], torch.Tensor], Any]] = [
    _in_forward_mode,
    lambda call, tensor: torch.func.jvp(call, (tensor,), (torch.ones_like(tensor),)),
    lambda call, tensor: torch.func.vmap(call)(torch.stack([tensor, tensor])),
]


WAYS: dict[str, Way] = {
    "module": _as_it_is, "copied module": partial(_copied, copy.deepcopy),
    "pickled module": partial(_copied, lambda twin: pickle.loads(pickle.dumps(twin))), "compiled module": _compiled,
    "transformed module": _transformed}
FACES = {name: Face(lambda operator: True, _arguments, partial(_run, way), has_layout=True, keeps_wrong=way is _compiled)
         for name, way in WAYS.items()}
