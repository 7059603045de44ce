"""Shrinks a node for which a library's results are wrong to a small node that shows the same mistake."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vkdml_lab.bench.nodes import ACTIVATIONS, GATES, Node
from vkdml_lab.targets.corpora import NAMED, in_layout_1

OPTIONAL = ("B", "sequence_lens", "initial_h", "initial_c", "P")
SECONDS, TRIES = 90.0, 250  # limits for shrinking a node


def shrink(node: Node, is_wrong: Callable[[Node], bool], until: float = np.inf) -> Node:
    """Return a simpler node for which `is_wrong` is true. Ends if none is, at the time `until`, or after SECONDS or TRIES."""
    until, tries = min(until, time.monotonic() + SECONDS), TRIES
    place = 0  # of the last replacement; earlier candidates were tried
    while True:
        simpler = list(candidates(node))
        for index in (*range(place, len(simpler)), *range(min(place, len(simpler)))):
            if tries == 0 or time.monotonic() > until:
                return node
            tries -= 1
            if is_wrong(simpler[index]):
                node, place = simpler[index], index
                break
        else:
            return node


def candidates(node: Node) -> Iterator[Node]:
    """Yield copies of a node, each simpler in one respect, such as fewer rows. Those that save most come first."""
    if node.get("layout"):
        plain = in_layout_1(replace(node, attributes={**node.attributes, "layout": 0}))  # swapping twice restores it
        plain = replace(plain, attributes={name: value for name, value in node.attributes.items() if name != "layout"})
        yield plain
        yield from map(in_layout_1, candidates(plain))
        return
    for size in dict.fromkeys((1, 2, node.steps // 2, node.steps - 1)):
        if 0 < size < node.steps:
            yield of_steps(node, size)
    yield from (of_rows(node, rows) for rows in parts(node.batch))
    if node.directions == 2:
        yield from (of_direction(node, direction) for direction in range(2))
    for name in OPTIONAL:
        if name in node.inputs:
            yield replace(node, inputs={key: array for key, array in node.inputs.items() if key != name})
    for name in ("clip", "input_forget", "linear_before_reset", "direction"):
        if name in node.attributes and not (name == "direction" and node.directions == 2):
            yield replace(node, attributes={key: value for key, value in node.attributes.items() if key != name})
    yield from of_activations(node)
    yield from (of_hidden(node, units) for units in parts(node.hidden))
    for some in parts(node.inputs["X"].shape[2]):
        yield replace(node, inputs={**node.inputs, "X": node.inputs["X"][..., some], "W": node.inputs["W"][..., some]})
    if node.element != "float32":
        yield changed(node, lambda array: array.astype(np.float32))
    for digits in (0, 1, 2):
        yield from _if_shorter(node, changed(node, partial(_rounded, digits=digits)))


def parts(size: int) -> Iterator[slice]:
    """Yield slices of an axis of this size: one element at an end, a half, or all but one element."""
    for start, stop in dict.fromkeys(((0, 1), (size - 1, size), (0, size // 2), (size // 2, size), (0, size - 1), (1, size))):
        if 0 < stop - start < size:
            yield slice(start, stop)


def _rounded(array: np.ndarray, digits: int) -> np.ndarray:
    return np.round(array.astype(np.float64), digits).astype(array.dtype)


def _if_shorter(node: Node, other: Node) -> Iterator[Node]:
    """Yield `other` if its inputs differ from the node's, and if none of them needs more decimal digits."""
    pairs = [(array, other.inputs[name]) for name, array in node.inputs.items()]
    if any(not np.array_equal(array, after, equal_nan=True) for array, after in pairs) and all(
            _digits(after) <= _digits(array) for array, after in pairs):
        yield other


def _digits(array: np.ndarray) -> int:
    """Return how many decimal digits an array's numbers need after the point: 0, 1, 2, or 3 for more."""
    wide = array.astype(np.float64)
    return next((digits for digits in range(3) if np.allclose(np.round(wide, digits), wide, 1e-3, 1e-6, equal_nan=True)), 3)


def changed(node: Node, change: Callable[[np.ndarray], np.ndarray]) -> Node:
    return replace(node, inputs={name: array if name == "sequence_lens" else change(array)
                                 for name, array in node.inputs.items()})


def of_steps(node: Node, steps: int) -> Node:
    inputs = {**node.inputs, "X": node.inputs["X"][:steps]}
    if "sequence_lens" in inputs:
        inputs["sequence_lens"] = np.minimum(inputs["sequence_lens"], steps)
    return replace(node, inputs=inputs)


def of_rows(node: Node, rows: slice) -> Node:
    where = {"sequence_lens": (rows,), **dict.fromkeys(("X", "initial_h", "initial_c"), (slice(None), rows))}
    return replace(node, inputs={name: array[where.get(name, ())] for name, array in node.inputs.items()})


def of_direction(node: Node, direction: int) -> Node:
    """Return a copy of a bidirectional node that computes only one direction: 0 is forward, 1 is reverse."""
    part = slice(direction, direction + 1)
    half = len(node.activations) // 2
    names = node.activations[direction * half:][:half]
    attributes = {**node.attributes, "direction": ("forward", "reverse")[direction]}
    if node.get("activations"):
        before = node.activations[:direction * half]
        for place, name in enumerate(("activation_alpha", "activation_beta")):
            skipped, taken = (sum(len(NAMED[one].onnx_defaults) > place for one in some) for some in (before, names))
            attributes[name] = (node.get(name) or [])[skipped:][:taken]
        attributes["activations"] = list(names)
    inputs = {name: array if name in ("X", "sequence_lens") else array[part] for name, array in node.inputs.items()}
    return replace(node, attributes={name: value for name, value in attributes.items() if value != []}, inputs=inputs)


def of_hidden(node: Node, units: slice) -> Node:
    """Return a copy of the node that has only the hidden units in a slice."""
    gates, h = GATES[node.op], node.hidden
    ways = {"W": (1, gates), "R": (1, gates), "B": (1, 2 * gates), "P": (1, 3), "initial_h": (2, 1), "initial_c": (2, 1)}
    indices = np.arange(h)[units]
    inputs = {name: np.take(array, np.add.outer(h * np.arange(ways[name][1]), indices).ravel(), ways[name][0])
              if name in ways else array for name, array in node.inputs.items()}
    return replace(node, inputs={**inputs, "R": inputs["R"][..., units]})


def of_activations(node: Node) -> Iterator[Node]:
    """Yield copies of a node: first with all default activations, then with one other activation replaced by the default."""
    if not node.get("activations"):
        return
    rest = {name: value for name, value in node.attributes.items() if not name.startswith("activation")}
    yield replace(node, attributes=rest)
    usual = ACTIVATIONS[node.op] * node.directions
    for index, name in enumerate(node.activations):
        if name == usual[index]:
            continue
        lists: dict[str, Any] = {}
        for place, key in enumerate(("activation_alpha", "activation_beta")):
            taking = [one for one, other in enumerate(node.activations) if len(NAMED[other].onnx_defaults) > place]
            values = [value for one, value in zip(taking, node.get(key) or []) if one != index]
            lists |= {key: values} if values else {}
        names = [usual[index] if one == index else other for one, other in enumerate(node.activations)]
        yield replace(node, attributes={**rest, "activations": names, **lists})
