"""Judges a library's outputs. Wrong outputs are compared with those of known mistakes, to name the mistake.

An output is right if each element is within its bound of the float64 reference. The bound is the suite's tolerance for the
type. For 16-bit types, and for nodes that name activations, the bound also has the effect of 16 roundings of the inputs: ONNX
does not define the type of states, and states may grow. Elements that ONNX's texts leave open are not judged (UNDEFINED).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from vkdml import reference
from vkdml_lab.bench.nodes import ACTIVATIONS, Node
from vkdml_lab.internals import Problem
from vkdml_lab.suite.support import TOLERANCES
from vkdml_lab.targets.corpora import NAMED

LAST_BIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
ROUNDINGS, NUDGES = 16, 3  # allowed roundings of all inputs; tries to find the effect of one rounding
RIGHT, WRONG, REFUSED, UNSUPPORTED, CRASHED, HUNG = "right", "wrong", "refused", "unsupported", "crashed", "hung"
OPEN = "not judged"
FINDINGS = (WRONG, CRASHED, HUNG)
OUTCOMES = (RIGHT, WRONG, REFUSED, UNSUPPORTED, CRASHED, HUNG, OPEN)

# What ONNX's texts leave open, and how this module handles it
UNDEFINED = {
    "Y past a row's length": "these elements are not judged",
    "Y_h and Y_c of a row of length 0": "these elements are not judged",
    "rows with NaN or infinity among their inputs": "these rows are not judged, the others are",
    "an LSTM's clip: whether it bounds C before h()": "what is right by either is no mistake",
    "input_forget: which of the gates is computed, which is 1 - the other": "what is right by either is no mistake",
    "activation_alpha and activation_beta: whether an activation that takes none is counted":
        "what is right by either is no mistake",
    "activations of GRU and LSTM beyond Sigmoid, Tanh and Relu are optional": "a refusal is no mistake",
    "the type in which states are carried between steps": "16-bit results may be off by what storing states in that type does",
}
_CLIP, _COUPLED, _LISTS = list(UNDEFINED)[3:6]


@dataclass(frozen=True)
class Expected:
    """The outputs to expect, by name, with each element's allowed error (bounds), and whether the element counts (judged)."""

    outputs: Mapping[str, np.ndarray]
    bounds: Mapping[str, np.ndarray]
    judged: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """The judgement of a node's outputs. outcome: one of OUTCOMES. said: about the worst element, or why there is no result or
    no judgement. share: the largest error divided by its bound. cause: the mistake that would explain the outputs, or "".
    """

    outcome: str
    said: str = ""
    share: float = 0.0
    cause: str = ""


def computed(node: Node, clips_c: bool = False) -> dict[str, np.ndarray]:
    """Return a node's outputs by the float64 reference. clips_c: whether an LSTM's clip also bounds C before h()."""
    if not node.batch:
        state, y = node.shapes
        return {name: np.zeros(y if name == "Y" else state) for name in node.outputs}
    function = getattr(reference, node.op.lower())
    inputs = {name.lower(): array for name, array in node.inputs.items()}
    with _c_clipped() if clips_c else nullcontext():
        return dict(zip(node.outputs, function(**inputs, **node.attributes)))


def expected(node: Node, clips_c: bool = False) -> Expected:
    """Return the outputs to expect. clips_c: whether an LSTM's clip also bounds C before h(), as ONNX's texts leave open."""
    outputs = computed(node, clips_c)
    rtol, atol = TOLERANCES[node.element]
    is_sensitive = node.element in ("float16", "bfloat16") or bool(node.get("activations"))
    moved = _moved(node, outputs) if is_sensitive else {name: np.zeros(()) for name in outputs}
    with np.errstate(invalid="ignore"):
        bounds = {name: atol + rtol * np.abs(array) + ROUNDINGS * moved[name] for name, array in outputs.items()}
    return Expected(outputs, bounds, {name: _judged(node, name, array.shape) for name, array in outputs.items()})


def _moved(node: Node, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return how far each element of the outputs moves in a few trials that change all inputs by half of their last bit."""
    rng, most = np.random.default_rng(0), {name: np.zeros(array.shape) for name, array in outputs.items()}
    wide = {name: array.astype(np.float64) if name != "sequence_lens" else array for name, array in node.inputs.items()}
    for _ in range(NUDGES):
        nudged = {name: array if name == "sequence_lens" else
                  array * (1 + LAST_BIT[node.element] * rng.choice([-1, 1], array.shape)) for name, array in wide.items()}
        for name, array in computed(replace(node, inputs=nudged)).items():
            with np.errstate(invalid="ignore"):
                most[name] = np.maximum(most[name], np.abs(array - outputs[name]))
    return most


def _judged(node: Node, name: str, shape: tuple[int, ...]) -> np.ndarray:
    layout, (t, b) = node.get("layout"), (node.steps, node.batch)
    lengths = node.inputs.get("sequence_lens", np.full(b, t))
    inside = np.arange(t)[:, None] < lengths
    x = node.inputs["X"].astype(np.float64)
    finite = (np.isfinite(x.swapaxes(0, 1) if layout else x).all(2) | ~inside).all(0)
    for state in ("initial_h", "initial_c"):
        if state in node.inputs:
            array = np.isfinite(node.inputs[state].astype(np.float64))
            finite &= (array.swapaxes(0, 1) if layout else array).all((0, 2))
    rows = inside & finite if name == "Y" else (lengths > 0) & finite
    shaped = rows[:, None, :, None] if name == "Y" else rows[None, :, None]
    if layout:
        shaped = np.moveaxis(shaped, 2, 0) if name == "Y" else shaped.swapaxes(0, 1)
    return np.broadcast_to(shaped, shape)


def compare(node: Node, outputs: Mapping[str, np.ndarray], against: Expected) -> Verdict:
    """Compare a node's outputs, by name, with the expected ones. Returns a verdict (RIGHT or WRONG) without a cause."""
    worst = Verdict(RIGHT)
    for name, wanted in against.outputs.items():
        if name not in outputs:
            return Verdict(WRONG, f"no {name}", np.inf)
        found = np.asarray(outputs[name]).astype(np.float64)
        if found.shape != wanted.shape:
            return Verdict(WRONG, f"{name} has the shape {list(found.shape)}, not {list(wanted.shape)}", np.inf)
        with np.errstate(all="ignore"):
            error = np.where(found == wanted, 0, np.abs(found - wanted) / against.bounds[name])
        error = np.where(np.isnan(error), np.inf, error)
        error = np.where(against.judged[name] & ~(np.isnan(found) & np.isnan(wanted)), error, 0)
        if error.size and error.max() > worst.share:
            at = tuple(int(index) for index in np.unravel_index(np.argmax(error), error.shape))
            wrong = int((error > 1).sum())
            said = f"{name}{list(at)} is {found[at]:.7g}, expected {wanted[at]:.7g}; {wrong} of {error.size} elements are wrong"
            worst = Verdict(WRONG, said, float(error.max())) if wrong else Verdict(RIGHT, "", float(error.max()))
    return worst


def judge(node: Node, outputs: Mapping[str, np.ndarray], against: Expected | None = None) -> Verdict:
    found = compare(node, outputs, against or expected(node))
    if found.outcome == RIGHT:
        return found
    cause = as_if(node, outputs)
    unclear = undefined(node)
    if unclear and "ignored" not in cause and (not _has_all_readings(node) or any(
            compare(node, outputs, other).outcome == RIGHT for other in other_readings(node))):
        return replace(found, outcome=OPEN, said=unclear)
    return replace(found, cause=cause)


def undefined(node: Node) -> str:
    """Return the key of UNDEFINED for an attribute of this node whose meaning ONNX's texts leave open, or ""."""
    if node.op == "LSTM" and node.get("clip") is not None:
        return _CLIP
    if node.get("input_forget"):
        return _COUPLED
    return _LISTS if _counts_otherwise(node) else ""


def _has_all_readings(node: Node) -> bool:
    """Return whether `other_readings` yields all meanings that a node may have: with input_forget, only if f is Sigmoid."""
    return not node.get("input_forget") or set(node.activations[::3]) == {"Sigmoid"}


def other_readings(node: Node) -> Iterator[Expected]:
    """Yield the outputs to expect for each other meaning that a node may have, as ONNX's texts leave it open."""
    nodes = [node]
    if node.get("input_forget"):
        nodes += [_forget_computed(node)]
    if _counts_otherwise(node):
        nodes += [_by_position(one) for one in nodes]
    for one, clips_c in itertools.product(nodes, [False, True][:1 + (node.op == "LSTM" and node.get("clip") is not None)]):
        if clips_c or one is not node:
            yield expected(one, clips_c)


def _counts_otherwise(node: Node) -> bool:
    """Return whether a node changes if each activation, even one without parameters, takes an entry of alpha and beta."""
    return _by_position(node).attributes != node.attributes


@contextmanager
def _c_clipped() -> Iterator[None]:
    """Make the float64 reference clip C before an LSTM's h() in this context."""
    usual = Problem.activation

    def activation(problem: Problem, direction: int, index: int) -> Any:
        function = usual(problem, direction, index)
        return function if index < 2 else lambda c: function(np.clip(c, -(problem.clip or 0), problem.clip))

    with patch.object(Problem, "activation", activation):
        yield


def _forget_computed(node: Node) -> Node:
    """Return an LSTM whose input gate is 1 - the forget gate of this node: a Sigmoid of negated weights."""
    h, blocks = node.hidden, {"W": 1, "R": 1, "B": 2, "P": 1}
    inputs = {name: array.copy() for name, array in node.inputs.items()}
    for name in set(blocks) & set(inputs):
        gates = 3 if name == "P" else 4
        for first in range(0, blocks[name] * gates * h, gates * h):
            inputs[name][:, first:first + h] = -inputs[name][:, first + 2 * h:first + 3 * h]
    return replace(node, inputs=inputs)


def _by_position(node: Node) -> Node:
    """Return a copy with other alpha and beta: each activation takes the entry at its own position, not the next unused one."""
    attributes: dict[str, Any] = dict(node.attributes)
    for place, name in enumerate(("activation_alpha", "activation_beta")):
        given = node.get(name) or []
        defaults = [(index, NAMED[one].onnx_defaults[place]) for index, one in enumerate(node.activations)
                    if len(NAMED[one].onnx_defaults) > place]
        attributes[name] = [given[index] if index < len(given) else default for index, default in defaults]
    return replace(node, attributes={name: value for name, value in attributes.items() if value != []})


# Mistakes that may explain outputs

def _without(*names: str) -> Callable[[Node], Node]:
    """Return a function that copies a node without these attributes and inputs."""
    return lambda node: Node(node.op, {name: value for name, value in node.attributes.items() if name not in names},
                             {name: value for name, value in node.inputs.items() if name not in names})


def _with(**attributes: Any) -> Callable[[Node], Node]:
    return lambda node: replace(node, attributes={**node.attributes, **attributes})


def _first_activations(node: Node) -> Node:
    half = len(node.activations) // node.directions
    lists = {name: values[:len(values) // 2] * 2 for name, values in node.attributes.items() if name.startswith("activation_")}
    return replace(node, attributes={**node.attributes, **lists, "activations": [*node.activations[:half] * node.directions]})


AS_IF: Mapping[str, Callable[[Node], Node]] = {
    **{f"{name} is ignored": _without(name)
       for name in ("sequence_lens", "clip", "P", "initial_h", "initial_c", "B", "input_forget")},
    "initial_h and initial_c are ignored": _without("initial_h", "initial_c"),
    "activations are ignored": _without("activations", "activation_alpha", "activation_beta"),
    "activation_alpha and activation_beta are ignored": _without("activation_alpha", "activation_beta"),
    "the second direction takes the first's activations, its own are ignored": _first_activations,
    "linear_before_reset is 1 where it is 0": _with(linear_before_reset=1),
    "linear_before_reset is 0 where it is 1": _with(linear_before_reset=0),
    "reverse runs forward": _with(direction="forward"),
    "forward runs reverse": _with(direction="reverse"),
}


def as_if(node: Node, outputs: Mapping[str, np.ndarray]) -> str:
    """Return the name of a known mistake (one in AS_IF, wrong shapes or less precision) that gives these outputs, or ""."""
    if node.get("layout") and set(outputs) == set(node.outputs) and any(
            np.shape(outputs[name]) != node.shapes[name == "Y"] for name in outputs):
        return "layout 1 gives outputs of other shapes"
    for name, other in readings(node):
        if compare(node, outputs, expected(other)).outcome == RIGHT:
            return name
    single = TOLERANCES["float32"]
    if node.element == "float64":
        wide = expected(node)
        bounds = {name: single[1] + single[0] * np.abs(array) for name, array in wide.outputs.items()}
        if compare(node, outputs, replace(wide, bounds=bounds)).outcome == RIGHT:
            return "float64 is computed in float32"
    return ""


def readings(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the name of each mistake in AS_IF that changes this node, and the node as a library with the mistake reads it."""
    if not node.batch:
        return
    for name, change in AS_IF.items():
        is_of_another = {"linear_before_reset": node.op != "GRU", "reverse": node.get("direction") != "reverse",
                         "forward": node.get("direction") != "forward",
                         "the": node.directions == 1 or node.activations == ACTIVATIONS[node.op] * 2}
        if is_of_another.get(name.split()[0], False):
            continue
        other = change(node)
        if other.attributes != node.attributes or set(other.inputs) != set(node.inputs):
            yield name, other
