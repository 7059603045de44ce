"""ONNX's GRU, LSTM and RNN for the operators of twins: what torch.onnx.export(dynamo=True) is to make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import InvalidArgumentError, MissingPackageError
from .stacks import KINDS, Form, Kind
from .torch_operators import OPERATORS

_ACTIVATIONS = {"RNN_TANH": "Tanh", "RNN_RELU": "Relu"}


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Translations to ONNX: torch.onnx.export(..., dynamo=True, custom_translation_table=onnx_translations()).

    Returns:
        For each operator of a twin a function that makes ONNX's operators of it, for any number of steps and rows.

    Raises:
        MissingPackageError: onnxscript is not installed; torch.onnx.export needs it too. The export fails for what ONNX does
            not have, `proj_size` and PackedSequences: an InvalidArgumentError is the cause of PyTorch's error.
    """
    try:
        from onnxscript import opset18
    except ImportError:
        raise MissingPackageError("onnx_translations needs the package onnxscript: pip install onnxscript") from None
    return {operator.default: _translation(opset18, mode) for mode, operator in OPERATORS.items()}


def _translation(op: Any, mode: str) -> Callable[..., Any]:
    """One operator's translation, which PyTorch calls by the names of the operator's arguments. op: the opset."""
    def translated(input: Any, hx: Any, weights: Any, batch_sizes: Any, module: str, input_size: int, hidden_size: int,
                   num_layers: int, bidirectional: bool, device: int) -> Any:
        form = Form(module, input_size, hidden_size, num_layers, bidirectional)
        count = len(weights) // (num_layers * form.directions)
        if count % 2 or batch_sizes is not None:
            found = "proj_size" if count % 2 else "a PackedSequence"
            raise InvalidArgumentError(module, "torch.onnx.export", found, "none: ONNX does not have it")
        return _layers(op, mode, form, input, hx, weights)

    return translated


def _layers(op: Any, mode: str, form: Form, y: Any, hx: Sequence[Any], weights: Sequence[Any]) -> tuple[Any, ...]:
    kind, d, count = KINDS[mode], form.directions, len(weights) // (form.num_layers * form.directions)
    attributes: dict[str, Any] = {"hidden_size": form.hidden_size, "direction": "bidirectional" if d == 2 else "forward"}
    if mode == "GRU":
        attributes["linear_before_reset"] = 1
    if mode in _ACTIVATIONS:
        attributes["activations"] = [_ACTIVATIONS[mode]] * d
    run = getattr(op, mode.partition("_")[0])
    last = []
    for k in range(form.num_layers):
        of_layer = [weights[start:start + count] for start in range(k * d * count, (k + 1) * d * count, count)]
        w, r, *biases = (_stacked(op, kind, form, tensors) for tensors in zip(*of_layer))
        b = op.Concat(*biases, axis=1) if biases else None
        states = [op.Slice(state, [k * d], [(k + 1) * d], [0]) for state in hx]
        y, *ends = run(y, w, r, b, None, *states, **attributes)
        y = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, -1])
        last.append(ends)
    return y, *(op.Concat(*of_layers, axis=0) for of_layers in zip(*last))


def _stacked(op: Any, kind: Kind, form: Form, directions: Sequence[Any]) -> Any:
    """A parameter of all directions, with ONNX's order of gates."""
    rows = np.arange(len(kind.gates) * form.hidden_size).reshape(len(kind.gates), -1)[list(kind.gates)].ravel().tolist()
    return op.Concat(*(op.Unsqueeze(op.Gather(tensor, rows), [0]) for tensor in directions), axis=0)
