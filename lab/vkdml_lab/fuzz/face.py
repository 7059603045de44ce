"""What a way in is to the fuzzer, and the device that all share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import vkdml
from vkdml_lab.fuzz.breaking import Argument
from vkdml_lab.fuzz.calls import Call, Operator
from vkdml_lab.internals import Problem, Submission

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Part:
    """What a call computed, beside what it had to: results by field, in DirectML's sizes."""

    problem: Problem
    arrays: Arrays
    results: Arrays


@dataclass(frozen=True)
class Face:
    """arguments: by name; what a call is made of. run: takes their values, broken or not.

    has_layout: whether ONNX's layout 1 can be asked for. begins_with_work: whether something right, which is executed, comes
    before what may be broken. keeps_wrong: whether something is compiled and kept for each way in which a call is broken, so
    that none is drawn. blamed: the arguments that a field of an error may be about.
    """

    takes: Callable[[Operator], bool]
    arguments: Callable[[Call], dict[str, Argument]]
    run: Callable[[Call, dict[str, Any]], list[Part]]
    has_layout: bool = False
    begins_with_work: bool = False
    keeps_wrong: bool = False
    blamed: Callable[[str], set[str]] | None = None


@cache
def device() -> vkdml.Device:
    return vkdml.Device()


@contextmanager
def no_work() -> Iterator[None]:
    """Raises AssertionError when the driver was given anything to do or to compile."""
    gpu, submitted = device().gpu, []
    before, run = gpu.pipelines_made, Submission.run

    def counted(self: Submission) -> None:
        submitted.append(self)
        run(self)

    Submission.run = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Submission.run = run  # type: ignore[method-assign]
    assert not submitted, "a broken call was executed before it was refused"
    assert gpu.pipelines_made == before, "a broken call was compiled before it was refused"
