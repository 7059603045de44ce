"""Functions to test by `vkdml conformance --target python:`. One is right, most fail for a GRU, and one ignores lengths."""

import os
import time

from vkdml import reference


def right(op, attributes, inputs):
    given = {name: value for name, value in attributes.items() if name not in ("op", "hidden_size")}
    outputs = getattr(reference, op.lower())(**{name.lower(): array for name, array in inputs.items()}, **given)
    return dict(zip(("Y", "Y_h", "Y_c"), [output.astype(inputs["X"].dtype) for output in outputs]))


def crashes(op, attributes, inputs):
    return os.abort() if op == "GRU" else right(op, attributes, inputs)


def hangs(op, attributes, inputs):
    time.sleep(600 if op == "GRU" else 0)
    return right(op, attributes, inputs)


def refuses(op, attributes, inputs):
    if op == "GRU":
        raise ValueError("no such operator")
    return right(op, attributes, inputs)


def lacks(op, attributes, inputs):
    if op == "GRU":
        raise NotImplementedError("GRU")
    return right(op, attributes, inputs)


def without_lengths(op, attributes, inputs):
    return right(op, attributes, {name: array for name, array in inputs.items() if name != "sequence_lens"})
