"""Converts a case to a node and a model of ONNX."""

from __future__ import annotations

import numpy as np

from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.nodes import Node
from vkdml_lab.bench.runner import zero_arrays

STATE_INPUTS = ("initial_h", "initial_c")
OUTPUTS = ("Y", "Y_h", "Y_c")


def node_of(case: Case, dtype: str = "float32") -> Node:
    """Return the case's node. Initial states are 0, as each call gets its own."""
    lengths = {"sequence_lens": case.lengths.astype(np.int32)} if case.ragged else {}
    arrays = {name: array.astype(dtype) for name, array in case.arrays().items()}
    return Node(case.cell.upper(), case.attributes, {**arrays, **lengths, **dict(zip(STATE_INPUTS, zero_arrays(case, dtype)))})


def make_model(case: Case) -> bytes:
    """A serialized model of one node. Weights are initializers, as in exported models.

    Its inputs: X, the lengths if it is ragged, and initial states if the case has them.
    """
    return node_of(case).model()
