"""Fuzzes vkdml's twins of PyTorch's modules, by calls that PyTorch's modules can make, too.

`python -m vkdml_lab.fuzz.torch_face --draws 1000 --seed 0` draws right and wrong calls of all six modules and of
torch.ops.vkdml, and compares results, their types and errors with PyTorch's.
"""

from __future__ import annotations

import argparse
import copy
import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import vkdml.torch
from vkdml.errors import TorchArgumentError, VkdmlError
from vkdml.faces.torch.stacks import to_numpy, to_torch
from vkdml_lab.fuzz.breaking import Argument
from vkdml_lab.fuzz.calls import Call, Operator
from vkdml_lab.fuzz.face import Face, Part, device, no_work

_ACTIVATIONS = {"GRU": ("SIGMOID", "TANH"), "LSTM": ("SIGMOID", "TANH", "TANH"), "RNN": ("TANH",)}
_GATES = {"GRU": ("zrn", "rzn"), "LSTM": ("iofg", "ifgo"), "RNN": ("h", "h")}  # in DirectML's order, and in PyTorch's
_STATES = ("HiddenInitTensor", "CellMemInitTensor")


class _Call(Call):
    """A call that PyTorch's modules can make. Lengths are at least 1, or at least 0 for the face "module with lengths"."""

    @staticmethod
    def of(call: Call) -> _Call:
        operator = call.operator
        directions = operator.directions
        states = set(_STATES) & set(operator.row.inputs) if "HiddenInitTensor" in operator.given else set()
        given = (set(operator.given) & {"BiasTensor", "SequenceLengthsTensor"}) | states
        changed = Operator(operator.cell, operator.inputs, operator.hidden, "bidirectional" if directions == 2 else "forward",
                           tuple((name,) for name in _ACTIVATIONS[operator.cell]) * directions, operator.element,
                           operator.cell == "GRU", None, tuple(sorted(given)))
        return _Call(call.face, changed, call.steps, call.batch, call.layout, call.growth, call.special, call.strided, call.seed)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        arrays = dict(super().arrays)
        if "SequenceLengthsTensor" in arrays and self.face != "module with lengths":
            arrays["SequenceLengthsTensor"] = np.maximum(arrays["SequenceLengthsTensor"], 1)
        return arrays

    def tensor(self, field: str) -> torch.Tensor:
        """Return the input of a DirectML field as a tensor, in the shape that PyTorch's module takes."""
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
    """Return the arguments of a module's call: the input, packed if there are lengths, and hx, a tuple only for LSTM."""
    hx = hx[0] if isinstance(hx, tuple) and len(hx) == 1 else hx
    lengths = None if made.face == "module with lengths" else made.arrays.get("SequenceLengthsTensor")
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


# Ways to call a twin. Each returns pairs of a call and its results. A broken call is refused at the first

Results = list[tuple[_Call, Any]]
Way = Callable[[_Call, torch.nn.Module, Any, Any], Results]


def _with_lengths(made: _Call, twin: torch.nn.Module, given: Any, hx: Any) -> Results:
    lengths = made.arrays.get("SequenceLengthsTensor")
    return [(made, twin(given, hx, lengths if lengths is None else lengths.reshape(-1).tolist()))]


def _copied(copied: Callable[[torch.nn.Module], torch.nn.Module], made: _Call, twin: torch.nn.Module, given: Any, hx: Any
            ) -> Results:
    """Run a twin, its copy, and the copy's copy. Returns all results. Before the copies run, the twin's weights become 0."""
    result, copy_of_it = twin(given, hx), copied(twin)
    copy_of_copy = copied(copy_of_it)
    for tensor in twin.parameters():
        tensor.zero_()
    return [(made, result), (made, copy_of_it(given, hx)), (made, copy_of_copy(given, hx))]


def _compiled(made: _Call, twin: torch.nn.Module, given: Any, hx: Any) -> Results:
    """Run a twin under torch.compile with two shapes. Returns both results. Increases PyTorch's limit of compilations."""
    other = replace(made, steps=made.steps % 7 + 2, batch=made.batch % 5 + 2)
    compiled = torch.compile(twin, backend="eager", dynamic=True)
    with torch._dynamo.config.patch(allow_rnn=True, recompile_limit=64):
        try:
            first = compiled(given, hx)
        except torch._dynamo.exc.TorchRuntimeError as error:  # raised by PyTorch, or wraps an operator's error
            if not any(text in str(error) for text in ("ArgumentError(", "Tensor device mismatch")):
                raise
            raise VkdmlError(str(error)) from error
        return [(made, first), (other, compiled(*_called(other, other.tensor("InputTensor"), _states(other))))]


def _transformed(made: _Call, twin: torch.nn.Module, given: Any, hx: Any) -> Results:
    """Check that forward-mode derivatives and vmap are refused for each tensor. Returns a call's results before and after."""
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
    """Yield pairs: a tensor of a call (input, one state, each weight), and the call as a function of this tensor alone."""
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
    "module": lambda made, twin, given, hx: [(made, twin(given, hx))], "module with lengths": _with_lengths,
    "copied module": partial(_copied, copy.deepcopy), "pickled module": partial(_copied, lambda twin: pickle.loads(pickle.dumps(twin))),
    "compiled module": _compiled, "transformed module": _transformed}
FACES = {name: Face(lambda operator: True, _arguments, partial(_run, way), has_layout=True, keeps_wrong=way is _compiled)
         for name, way in WAYS.items()}


# Calls compared with PyTorch's own modules

_SETTINGS: dict[str, list[dict[str, Any]]] = {"GRU": [{}], "LSTM": [{}, {"proj_size": 4}], "RNN": [{}, {"nonlinearity": "relu"}], "GRUCell": [{}], "LSTMCell": [{}],
             "RNNCell": [{}, {"nonlinearity": "relu"}]}
_NOT_IN_PYTORCH = ("could not create a primitive", "not implemented", "Unexpected floating ScalarType")
_DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)
_TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10, torch.float16: 1e-2, torch.bfloat16: 6e-2}
_WRONG_INPUTS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.cat([x, x], -1), lambda x: x[..., :-1], lambda x: x[None, None], lambda x: x[..., 0], lambda x: x[:0],
    lambda x: x.to(torch.float64 if x.dtype is torch.float32 else torch.float32)]
_WRONG_STATES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    *_WRONG_INPUTS[:4], lambda h: h.repeat_interleave(2, max(h.dim() - 2, 0)), lambda h: torch.cat([h, h], 0), lambda h: h[None]]
_WRONG_LENGTHS: list[Callable[[list[int]], Any]] = [
    lambda lengths: [*lengths, 1], lambda lengths: [-1, *lengths[1:]], lambda lengths: [*lengths[1:], 10**6],
    lambda lengths: [float(one) for one in lengths], lambda lengths: [lengths], lambda lengths: "all", lambda lengths: 3]


class Draw:
    """A random call of a module, right or wrong."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.kind: str = self.one_of(*_SETTINGS)
        self.is_cell, self.dtype = self.kind.endswith("Cell"), self.one_of(*_DTYPES)
        more = dict(self.one_of(*_SETTINGS[self.kind]))
        if not self.is_cell:
            more |= {name: self.one_of(False, True) for name in ("bidirectional", "batch_first")} | {"num_layers": self.one_of(1, 2)}
        torch.manual_seed(seed)
        self.module = getattr(torch.nn, self.kind)(3, 6, bias=self.one_of(True, False), **more).to(self.dtype).eval()
        self.autocast = self.one_of(None, None, torch.bfloat16, torch.float16)
        self.form = self.one_of("batch", "row") if self.is_cell else self.one_of("batch", "row", "packed", "lengths")
        steps, rows = self.one_of(1, 4), self.one_of(1, 3)
        self.lengths = [int(one) for one in self._rng.integers(self.form == "packed", steps + 1, rows)]
        self.input = torch.randn([rows] * (self.form != "row") + [3]) if self.is_cell else torch.randn(
            [steps, 3] if self.form == "row" else [rows, steps, 3] if self.module.batch_first else [steps, rows, 3])
        layers = [] if self.is_cell else [more["num_layers"] * (1 + more["bidirectional"])]
        sizes = [more.get("proj_size", 6), 6][:1 + self.kind.startswith("LSTM")] if self.one_of(True, False) else []
        self.hx = [torch.randn([*layers, *[rows] * (self.form != "row"), size]) for size in sizes]
        is_mixed = self.autocast and self.dtype is not torch.float64  # autocast leaves float64 as it is
        self.input, *self.hx = (one.to(self.one_of(*_DTYPES[:-1]) if is_mixed else self.dtype) for one in (self.input, *self.hx))
        self.wrong = self.one_of(None, "input", "states", "count", "lengths")
        self._break()

    def one_of(self, *choices: Any) -> Any:
        return choices[self._rng.integers(len(choices))]

    def _break(self) -> None:
        self.given: Any = self.lengths
        shapes = [one.shape for one in (self.input, *self.hx)]
        if self.wrong == "input" and self.form != "packed":
            self.input = self.one_of(*_WRONG_INPUTS)(self.input)
        elif self.wrong == "states" and self.hx:
            self.hx[-1] = self.one_of(*_WRONG_STATES)(self.hx[-1])
        elif self.wrong == "count" and self.hx and "LSTM" in self.kind:
            self.hx = self.hx[:1]
        elif self.wrong == "lengths" and self.form == "lengths":
            self.given = self.one_of(*_WRONG_LENGTHS)(self.lengths)
        else:
            self.wrong = None
        self.is_reshaped = self.wrong in ("input", "states") and shapes != [one.shape for one in (self.input, *self.hx)]

    def call(self, module: torch.nn.Module, is_twin: bool) -> list[torch.Tensor]:
        """Call a twin or PyTorch's module. Returns all results. Instead of lengths, PyTorch's takes a PackedSequence."""
        hx, lengths = (tuple(self.hx) if "LSTM" in self.kind else self.hx[0]) if self.hx else None, torch.tensor(self.lengths)
        with torch.no_grad(), torch.autocast("cpu", self.autocast or torch.bfloat16, enabled=self.autocast is not None):
            if self.form == "lengths" and is_twin:
                return _flat(module(self.input, hx, self.given))
            if self.form not in ("packed", "lengths"):
                return _flat(module(self.input, hx))
            first = self.module.batch_first
            packed = pack_padded_sequence(self.input, lengths.clamp(min=1), first, enforce_sorted=False)
            y, last = module(packed, hx)
            y, masks = pad_packed_sequence(y, first, total_length=self.input.shape[first])[0], (lengths > 0)[:, None]
            return [y * (masks[:, None] if first else masks), *(state * masks for state in _flat(last))]

    def check(self) -> str:
        """Compare a twin's results or error with PyTorch's. Raises AssertionError if they differ. Returns the outcome."""
        got = _result(self.call, vkdml.torch.convert(self.module), True)
        is_unseen = self.is_reshaped and self.form in ("packed", "lengths")  # PyTorch would read beyond the end
        expected = RuntimeError("a PackedSequence of wrong sizes") if is_unseen else _result(self.call, self.module, False)
        if any(_is_pytorchs(one) for one in (got, expected)):
            return "PyTorch cannot"
        if isinstance(got, Exception):
            if str(got) == str(expected):
                return "cannot be packed"
            assert isinstance(got, VkdmlError), f"not our error: {got!r}"
            is_expected = self.wrong == "lengths" or isinstance(expected, Exception)
            assert is_expected, f"PyTorch takes it: {got}"
            is_like = not isinstance(expected, RuntimeError | ValueError) or isinstance(got, type(expected))
            assert is_like, f"{got!r}, where PyTorch raises {expected!r}"
            return "both refuse"
        assert not isinstance(expected, Exception), f"accepted, where PyTorch raises {expected!r}"
        assert [(one.dtype, one.shape) for one in got] == [(one.dtype, one.shape) for one in expected], (
            f"{[(one.dtype, one.shape) for one in got]} instead of {[(one.dtype, one.shape) for one in expected]}")
        tolerance = max(_TOLERANCES[dtype] for dtype in (self.dtype, self.input.dtype, self.autocast or self.dtype))
        torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)
        return "equal"


def _flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [tensor for part in result for tensor in _flat(part)]


def _result(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:  # the caller compares errors, too
        return error


def _is_pytorchs(result: Any) -> bool:
    """Whether a result is an error of PyTorch that says that it has no kernel for these arguments."""
    return (isinstance(result, Exception) and not isinstance(result, VkdmlError)
            and any(text in str(result) for text in _NOT_IN_PYTORCH))


_WRONG_ARGUMENTS: list[tuple[str, Callable[[Any], Any]]] = [
    *(("input", wrong) for wrong in _WRONG_INPUTS), ("input", lambda x: x[0]), ("input", lambda x: x[0, 0, 0]), ("input", lambda x: x.int()),
    *(("hx", lambda hx, wrong=wrong: [*hx[:-1], wrong(hx[-1])]) for wrong in _WRONG_STATES),
    ("hx", lambda hx: [*hx, hx[0]]), ("hx", lambda hx: [*hx, *hx, *hx]), ("weights", lambda weights: weights[:-1]), ("weights", lambda weights: []),
    ("weights", lambda weights: [weights[0][0, 0], *weights[1:]]), ("weights", lambda weights: [weights[1], weights[0], *weights[2:]]),
    ("weights", lambda weights: [*weights[:-1], weights[-1].double()]), ("batch_sizes", lambda sizes: torch.tensor([1])),
    ("lengths", lambda lengths: lengths[:-1]), ("lengths", lambda lengths: lengths.float()), ("lengths", lambda lengths: lengths[None]),
    ("hidden_size", lambda size: size + 1), ("hidden_size", lambda size: 0), ("input_size", lambda size: -1), ("num_layers", lambda count: 0),
    ("num_layers", lambda count: 5), ("bidirectional", lambda two: not two)]


def check_operator(seed: int) -> str:
    """Check that torch.ops.vkdml refuses a wrong argument before any work, and with the same error for fake tensors."""
    rng = np.random.default_rng(seed)
    mode = str(rng.choice(["gru", "lstm", "rnn_tanh", "rnn_relu"]))
    kind, layers, two = mode.split("_")[0].upper(), int(rng.integers(1, 3)), bool(rng.integers(2))
    module = getattr(torch.nn, kind)(3, 6, layers, bidirectional=two)
    states = [torch.randn(layers * (1 + two), 2, 6) for _ in range(1 + (kind == "LSTM"))]
    right = {"input": torch.randn(4, 2, 3), "hx": states, "weights": [one.detach() for one in module.parameters()], "batch_sizes": None,
             "module": kind, "input_size": 3, "hidden_size": 6, "num_layers": layers, "bidirectional": two, "device": 0,
             "lengths": torch.tensor([4, 0])}
    name, wrong = _WRONG_ARGUMENTS[rng.integers(len(_WRONG_ARGUMENTS))]
    given = right | {name: wrong(right[name])}
    if name == "batch_sizes":
        given["lengths"] = None
    operator = getattr(torch.ops.vkdml, mode)
    with no_work():
        error = _result(lambda: operator(**given))
    assert isinstance(error, TorchArgumentError), f"{name}: {error!r}"
    with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
        faked = {key: [fakes.from_tensor(one) for one in value] if isinstance(value, list) else
                 fakes.from_tensor(value) if isinstance(value, torch.Tensor) else value for key, value in given.items()}
        fake = _result(lambda: operator(**faked))
    assert str(fake) == str(error), f"{name}: {fake!r}, and {error!r}"
    return "operator refuses"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare made-up calls of PyTorch's twins with PyTorch.")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.draws):
        try:
            counts[check_operator(seed) if seed % 4 == 3 else Draw(seed).check()] += 1
        except AssertionError as error:
            counts["DIFFERENT"] += 1
            print(f"seed {seed}: {error}")
    print(dict(counts))
    raise SystemExit(counts["DIFFERENT"] > 0)


if __name__ == "__main__":
    main()
