"""Makes ONNX nodes, in groups (corpora), that targets (libraries under test) compute. The nodes depend only on a seed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from vkdml_lab.bench.nodes import ABSENT, ACTIVATIONS, GATES, INPUTS, Node
from vkdml_lab.internals import ACTIVATIONS as ROWS
from vkdml_lab.internals import ElementType
from vkdml_lab.suite import support

Named = tuple[str, Node]
Numbers = np.random.Generator

RANDOM, LONG_RANDOM = 450, 10_000  # the first is the number that the suite has
ROUNDS = 2  # how often each feature is tested, with other sizes
NAMED = {row.onnx_name: row for row in ROWS.values() if row.onnx_name}
ALPHA = {"Affine": 0.8, "Elu": 0.9, "HardSigmoid": 0.3, "LeakyRelu": 0.1, "ScaledTanh": 0.7, "ThresholdedRelu": 0.2}
BETA = {"Affine": 0.1, "HardSigmoid": 0.4, "ScaledTanh": 0.6}


# Random problems, drawn as the suite does, from activations that ONNX has

def random_activation(rng: Numbers, element: ElementType) -> Any:
    """Draw an activation that ONNX has. Softplus keeps its default parameter, which ONNX cannot change."""
    row = list(NAMED.values())[rng.integers(len(NAMED))]
    parameters = {field: float(rng.choice([-1, 1, 1, 1]) * rng.uniform(0.3, 1.5)) for field in row.fields}
    return row.desc(**({} if row.onnx_name == "Softplus" else parameters))


def random_node(seed: int) -> Node:
    cell = support.CELLS[seed % len(support.CELLS)]
    for attempt in itertools.count():
        rng = support.random_numbers(seed, attempt, 38)
        case = support.tamed(support.wild_case(cell, rng, random_activation))
        if case is not None:
            node = as_node(case)
            return in_layout_1(node) if rng.random() < 0.1 else node
    raise AssertionError


def as_node(case: Any) -> Node:
    """Convert a case of the suite (support.Case) to a node of ONNX. The arrays have ONNX's shapes, and no strides."""
    problem = case.problem
    inputs = {}
    for name, field in ((name, field) for field, name in problem.cell.arguments.items() if field in problem.inputs):
        if problem.has(field):
            array = problem.tensor(field).view(np.ascontiguousarray(case.arrays[field]).reshape(-1)).copy()
            inputs[name] = (array.reshape(-1).astype(np.int32) if name == "sequence_lens" else
                            array.reshape(array.shape[2 if name in ("B", "P") else 1:]))
    attributes: dict[str, Any] = {"direction": ("bidirectional" if problem.directions == 2 else
                                                "reverse" if problem.reverse[0] else "forward")}
    names = [fused.activation.onnx_name for fused in problem.activations]
    if tuple(names) != ACTIVATIONS[problem.cell.name] * problem.directions:
        lists = [[fused.params[place] for fused in problem.activations if len(fused.activation.onnx_defaults) > place]
                 for place in range(2)]
        attributes |= {"activations": names, **{name: values for name, values in
                                                zip(("activation_alpha", "activation_beta"), lists) if values}}
    if problem.clip is not None:
        attributes["clip"] = float(np.float32(problem.clip))
    attributes |= {problem.cell.flags[flag]: 1 for flag, is_on in problem.flags.items() if is_on}
    return Node(problem.cell.name, attributes, {name: inputs[name] for name in INPUTS[problem.cell.name] if name in inputs})


def in_layout_1(node: Node) -> Node:
    swapped = {name: array.swapaxes(0, 1).copy() if name in ("X", "initial_h", "initial_c") else array
               for name, array in node.inputs.items()}
    return Node(node.op, {**node.attributes, "layout": 1}, swapped)


def of_random(count: int) -> Iterator[Named]:
    for seed in range(count):
        yield f"random-{seed}", random_node(seed)


# Single features, and pairs of them

def usual(op: str, sizes: tuple[int, ...], given: str = "", element: str = "float32", seed: int = 0, **attributes: Any) -> Node:
    """Make a node with inputs of about unit size. sizes: T, B, I, H. given: optional inputs besides B, separated by spaces."""
    rng, (t, b, i, h) = support.random_numbers(seed, *sizes), sizes
    d, gates = 2 if attributes.get("direction") == "bidirectional" else 1, GATES[op]
    shapes: dict[str, tuple[tuple[int, ...], float]] = {
        "X": ((t, b, i), 1), "W": ((d, gates * h, i), i), "R": ((d, gates * h, h), h), "B": ((d, 2 * gates * h), 4),
        "initial_h": ((d, b, h), 1), "initial_c": ((d, b, h), 1), "P": ((d, 3 * h), 4)}
    wanted = {"X", "W", "R", "B", *given.split()}
    size = 0.3 if "activations" in attributes else 1.0  # keeps recurrences without bounds from growing
    inputs = {name: (rng.standard_normal(shape) * size * scale**-0.5).astype(support.DTYPES[element])
              for name, (shape, scale) in shapes.items() if name in wanted}
    inputs["sequence_lens"] = rng.permutation(np.linspace(1, t, b).astype(np.int32))
    layout = attributes.pop("layout", 0)
    node = Node(op, attributes, {name: inputs[name] for name in INPUTS[op] if name in wanted})
    return in_layout_1(node) if layout else node


def activated(names: tuple[str, ...]) -> dict[str, Any]:
    alphas, betas = ([values[name] for name in names if name in values] for values in (ALPHA, BETA))
    lists = {"activations": list(names), "activation_alpha": alphas, "activation_beta": betas}
    return {name: values for name, values in lists.items() if values}


def features(op: str) -> dict[str, dict[str, Any]]:
    """Return, by a feature's name, the arguments with which `usual` makes a node that has this feature."""
    cells: dict[str, dict[str, dict[str, Any]]] = {
        "GRU": {"linear": {"linear_before_reset": 1}}, "RNN": {},
        "LSTM": {"peepholes": {"given": "P"}, "coupled": {"input_forget": 1}, "initial_c": {"given": "initial_c"}}}
    first, *others = ACTIVATIONS[op]
    two = activated(("HardSigmoid" if others else "Relu", *others, first, *others))
    return {"reverse": {"direction": "reverse"}, "bidirectional": {"direction": "bidirectional"},
            "lengths": {"given": "sequence_lens"}, "initial": {"given": "initial_h" + " initial_c" * (op == "LSTM")},
            "clip": {"clip": 0.3}, "layout": {"layout": 1}, **cells[op],
            "two-activations": {"direction": "bidirectional", **two},
            **{name.lower(): activated((first, name, *others[1:]) if others else (name,))
               for name in NAMED if name != "Tanh"},
            **{f"{name.lower()}-first": activated((name, *others)) for name in NAMED if others and name != "Sigmoid"}}


PAIRED = ("reverse", "bidirectional", "lengths", "initial", "clip", "layout", "linear", "peepholes", "coupled")


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other, "given": f"{one.get('given', '')} {other.get('given', '')}".strip()}
    return both


def of_features() -> Iterator[Named]:
    for round_, op in itertools.product(range(ROUNDS), INPUTS):
        rng = support.random_numbers(round_, len(op))

        def made(name: str, seed: int = round_, op: str = op, rng: Numbers = rng, **said: Any) -> Named:
            sizes = tuple(int(size) for size in rng.integers([3, 2, 1, 2], [13, 12, 12, 20]))
            return f"{op}-{name}-{seed}", usual(op, sizes, seed=seed, **said)

        known = features(op)
        yield made("plain")
        for element in ("float32", "float16", "float64", "bfloat16"):
            yield made(element, element=element)
        for name, said in known.items():
            yield made(name, **said)
        for one, other in itertools.combinations([name for name in PAIRED if name in known], 2):
            yield made(f"{one}-{other}", **together(known[one], known[other]))


# Sizes at which libraries have failed, and long sequences

SIZES = {"one-step": (1, 3, 4, 5), "one-row": (5, 1, 4, 5), "ones": (1, 1, 1, 1), "H-129": (3, 2, 5, 129),
         "H-33": (4, 3, 31, 33),
         "H-1100": (2, 1, 5, 1100), "I-257": (2, 3, 257, 3), "B-70": (2, 70, 3, 5), "TB-65535": (65535, 1, 1, 2),
         "TB-65536": (4096, 16, 1, 2), "TB-65537": (1, 65537, 1, 2), "B-0": (3, 0, 4, 5), "T-1000": (1000, 2, 3, 8)}
LONG_SIZES = {"T-20000": (20000, 1, 1, 4), "TB-131072": (8192, 16, 1, 2), "H-2048": (2, 1, 8, 2048)}


def of_sizes(sizes: Mapping[str, tuple[int, int, int, int]]) -> Iterator[Named]:
    for op, (name, size) in itertools.product(INPUTS, sizes.items()):
        linear: list[dict[str, Any]] = [{"linear_before_reset": 1}, {}] if op == "GRU" else [{}]
        for said in linear:
            yield f"{op}-{name}{'-linear' * bool(said)}", usual(op, size, seed=3, **said)
        if name in ("one-step", "H-33"):
            node = usual(op, size, "sequence_lens", seed=4, **linear[0])
            node.inputs["sequence_lens"][0] = 0
            yield f"{op}-{name}-length-0", node


# NaN and infinity in one row, which is not judged, or where they must not be read; and huge inputs

def of_special_values() -> Iterator[Named]:
    linear: dict[str, dict[str, Any]] = {"GRU": {"linear_before_reset": 1}, "LSTM": {}, "RNN": {}}
    for op, special in itertools.product(INPUTS, (np.nan, np.inf)):
        node = usual(op, (3, 3, 4, 9), "sequence_lens", seed=5, **linear[op])
        node.inputs["X"][1, 1, 2] = special
        yield f"{op}-{special}-in-a-row", node
        node = usual(op, (3, 3, 4, 9), "sequence_lens", seed=5, **linear[op])
        node.inputs["sequence_lens"][:] = [3, 1, 2]
        node.inputs["X"][2, 1:] = special
        yield f"{op}-{special}-past-the-length", node
    for op, name in itertools.product(INPUTS, NAMED):
        if name not in ("Affine", "Elu", "LeakyRelu", "Relu", "ScaledTanh", "ThresholdedRelu") or op == "RNN":
            node = usual(op, (1, 4, 3, 5), seed=6, **activated((name, *ACTIVATIONS[op][1:])))
            node.inputs["X"][...] *= 200
            yield f"{op}-huge-{name}", node


# The node tests of the package onnx

def of_onnx() -> Iterator[Named]:
    from onnx import helper
    from onnx.backend.test.case import node as cases
    from onnx.backend.test.case.node import gru, lstm, rnn  # noqa: F401  (adds their cases to those of node)

    for case in cases._NodeTestCases:
        if re.match(r"test_(gru|lstm|rnn|simple_rnn)_", case.name) and case.model is not None:
            proto = case.model.graph.node[0]
            attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute}
            attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
            given = dict(zip([name for name in proto.input if name], case.data_sets[0][0]))
            inputs = {name: given[mine] for name, mine in zip(INPUTS[proto.op_type], proto.input) if mine}
            yield case.name, Node(proto.op_type, {name: value for name, value in attributes.items() if name in ABSENT}, inputs)


Corpus = Callable[[], Iterator[Named]]
CORPORA: dict[str, Corpus] = {"features": of_features, "sizes": partial(of_sizes, SIZES), "special values": of_special_values,
                              "ONNX's tests": of_onnx, "random": partial(of_random, RANDOM)}
LONG: dict[str, Corpus] = CORPORA | {"sizes": partial(of_sizes, SIZES | LONG_SIZES), "random": partial(of_random, LONG_RANDOM)}
