"""Writes nodes of corpora.py with expected outputs, for programs in any language: `vkdml conformance --export FOLDER`.

Format 1. cases.json lists the cases, each a node: name, corpus, operator, type, attributes (with hidden_size) and features.
NAME.npz holds inputs by ONNX's names and, for each output such as Y, expected_Y in float64, bound_Y (the allowed error of each
element) and judged_Y (whether the element counts). bfloat16 is stored as uint16. NAME/ holds model.onnx and test_data_set_0, as
in onnx's backend tests.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper
from tqdm import tqdm

from vkdml.errors import InvalidArgumentError
from vkdml_lab.bench.nodes import Node
from vkdml_lab.reports import write
from vkdml_lab.suite import support
from vkdml_lab.targets import judging, report, running

FORMAT = 1
LARGEST = 100_000  # elements of a tensor; larger cases are left out


def main(chosen: argparse.Namespace) -> int:
    folder: Path = chosen.export
    if folder.exists() and any(folder.iterdir()):
        raise InvalidArgumentError("conformance", "--export", folder, "a folder that is empty, or is not there")
    support.base_seed = chosen.seed
    planned = running.nodes(chosen.long, tuple(chosen.only))
    small = [(corpus, re.sub(r"[^\w-]", "_", name), node) for corpus, name, node in planned if _size(node) <= LARGEST]
    cases = [exported(folder, corpus, name, node) for corpus, name, node in tqdm(small, disable=None, unit="case")]
    write(folder, {"cases.json": {"format": FORMAT, "seed": chosen.seed, "undefined": judging.UNDEFINED, "cases": cases}})
    print(f"{len(cases)} of {len(planned)} cases: {folder}/cases.json; the others have over {LARGEST:,} numbers in a tensor")
    return 0


def _size(node: Node) -> int:
    y = node.steps * node.batch * node.directions * node.hidden
    return max(y, *(array.size for array in node.inputs.values()))


def exported(folder: Path, corpus: str, name: str, node: Node) -> dict[str, Any]:
    """Write the files of one case. Returns its entry in cases.json."""
    against = judging.expected(node)
    data = folder / name / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / name / "model.onnx").write_bytes(node.model())
    for index, (tensor, array) in enumerate(node.feeds.items()):
        (data / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array, tensor).SerializeToString())
    for index, (tensor, array) in enumerate(against.outputs.items()):
        with np.errstate(over="ignore"):
            typed = numpy_helper.from_array(array.astype(node.inputs["X"].dtype), tensor)
        (data / f"output_{index}.pb").write_bytes(typed.SerializeToString())
    bits = {tensor: array.view(np.uint16) if array.dtype.name == "bfloat16" else array for tensor, array in node.inputs.items()}
    kinds = {"expected": against.outputs, "bound": against.bounds, "judged": against.judged}
    more: dict[str, Any] = {f"{kind}_{tensor}": array for kind, of in kinds.items() for tensor, array in of.items()}
    np.savez_compressed(folder / f"{name}.npz", **(more | bits))
    attributes = {**node.attributes, "hidden_size": node.hidden}
    entry = {"name": name, "corpus": corpus, "op": node.op, "element": node.element,
             "attributes": attributes, "features": sorted(report.features(node)), "undefined": judging.undefined(node)}
    write(folder, {f"{name}.json": {"format": FORMAT, **entry}})
    return entry
