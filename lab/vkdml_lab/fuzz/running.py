"""Checks one call: the broken call must be refused before any work; the same call unbroken must give right results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from vkdml.errors import InvalidArgumentError, VkdmlError
from vkdml.operators.correctness import differences
from vkdml_lab.fuzz import bounds
from vkdml_lab.fuzz.breaking import broken
from vkdml_lab.fuzz.calls import Call
from vkdml_lab.fuzz.face import Part, no_work
from vkdml_lab.fuzz.faces import FACES


def run(call: Call) -> bool:
    """Check that a call with `breaks` is refused, and the call without them right. Returns whether results could be judged."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if call.breaks:
            check_refused(call)
        return check_right(replace(call, breaks=()))


def check_refused(call: Call) -> None:
    face = FACES[call.face]
    arguments = face.arguments(call)
    with nullcontext() if face.begins_with_work else no_work():
        values, wrong = broken(arguments, call.breaks)
        error = _refusal(lambda: face.run(call, values))
    assert error is not None, "a broken call was taken"
    assert str(error), "an error without a message"
    if isinstance(error, InvalidArgumentError):
        assert error.field, "an error that names no field"
        assert error.field in str(error), f"{error.field!r} is not in the message {error}"
        assert not face.blamed or face.blamed(error.field) & wrong, f"a message names no broken argument of {wrong}: {error}"


def check_right(call: Call) -> bool:
    face = FACES[call.face]
    parts: list[Part] = []
    values = {name: argument.value for name, argument in face.arguments(call).items()}
    refusal = _refusal(lambda: parts.extend(face.run(call, values)))
    if refusal is not None:
        is_certain = bounds.allowed(call.problem, call.arrays).is_certain
        assert call.operator.type.pairs, f"a right call was refused: {refusal}"
        assert not is_certain, f"a right call was refused: {refusal}"  # float64 kernels end at float32's range
        return False
    return judge(call, parts)


def judge(call: Call, parts: Sequence[Part]) -> bool:
    """Compare results with their bounds. Raises AssertionError for a wrong number. Returns False if bounds are too wide.

    Each step is also judged alone, from the device's state before it, as Device(verify=...) does. This finds mistakes where
    errors grow too much to judge the whole, and shows that Device(verify=...) raises no false alarm.
    """
    judged = [bounds.allowed(part.problem, part.arrays) for part in parts]
    for part, allowed in zip(parts, judged):
        bounds.check(call.operator.type, part.results, allowed)
        memory = {field: np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                  for field, array in (part.arrays | part.results).items()}
        wrong = differences(part.problem, memory)
        assert not wrong, f"a step alone is wrong: {wrong[0]}"
    return not any(allowed.is_blind for allowed in judged)


def _refusal(work: Callable[[], object]) -> VkdmlError | None:
    try:
        work()
    except VkdmlError as error:
        return error
    return None
