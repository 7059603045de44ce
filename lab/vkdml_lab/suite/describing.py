"""Describes operators by a sentence, and by features that reports count. Only descriptors matter, not vkdml's plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vkdml.operators.activations import ParametrizedActivation
from vkdml.operators.checks import packed_strides
from vkdml.operators.problem import Problem

TENSOR_FEATURES = {"SequenceLengthsTensor": "sequence lengths", "HiddenInitTensor": "initial state",
                   "CellMemInitTensor": "initial state", "BiasTensor": "bias", "PeepholeTensor": "peepholes"}


def sentence(problem: Any) -> str:
    """Describe an operator in one line, from which a person can build the same operator in another program."""
    if not isinstance(problem, Problem):
        tensors = [f"{field} {_shape(problem.tensor(field))}" for field in (*problem.inputs, *problem.outputs) if problem.has(field)]
        return f"{name(problem)}: {', '.join([problem.element.name, *tensors, *_functions([getattr(problem, 'function', None)])])}"
    values = {"clip": f"clip {problem.clip:.4g}" if problem.clip is not None else "",
              "custom activations": "activations " + " ".join(_functions(problem.activations)),
              "forward": "", "backward": "", "bidirectional": ""}  # str(problem) includes the direction
    return ", ".join(filter(None, [str(problem), *(values.get(feature, feature) for feature in sorted(features(problem)))]))


def name(problem: Any) -> str:
    return problem.cell.name if isinstance(problem, Problem) else problem.operator.removeprefix("DML_").removesuffix("_OPERATOR_DESC")


def sizes(problem: Any) -> dict[str, int]:
    if not isinstance(problem, Problem):
        return {}
    return {"T": problem.steps, "B": problem.batch, "I": problem.input_size, "H": problem.hidden}


def features(problem: Any) -> set[str]:
    """Return the names of an operator's features, such as "bidirectional" and "clip", by which reports count cases."""
    tensors = [problem.tensor(field) for field in problem.tensors if problem.has(field)]
    strides = {"strides"} if any(tensor.strides != packed_strides(tensor.sizes) for tensor in tensors) else set()
    if not isinstance(problem, Problem):
        return strides
    activations = tuple(fused.activation.onnx_name for fused in problem.activations)
    switches = {**problem.flags, "clip": problem.clip is not None,
                "custom activations": activations != problem.cell.default_activations * problem.directions}
    return {"bidirectional" if problem.directions == 2 else "backward" if problem.reverse[0] else "forward", *strides,
            *(feature for field, feature in TENSOR_FEATURES.items() if problem.has(field)),
            *(feature for feature, is_on in switches.items() if is_on)}


def _shape(tensor: Any) -> str:
    return "x".join(map(str, tensor.sizes)) + (" with strides" if tensor.strides != packed_strides(tensor.sizes) else "")


def _functions(fused: Any) -> Iterator[str]:
    for one in fused:
        if isinstance(one, ParametrizedActivation):
            parameters = ", ".join(f"{value:.4g}" for value in one.params)
            yield one.activation.operator_type.name.removeprefix("ACTIVATION_") + (f"({parameters})" if parameters else "")
