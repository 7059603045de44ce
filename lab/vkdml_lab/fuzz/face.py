"""What the fuzzer knows about a face (a way to call vkdml, such as an ONNX session), and the device that all faces share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

import vkdml
from vkdml_lab.fuzz.breaking import Argument
from vkdml_lab.fuzz.calls import Call, Operator
from vkdml_lab.internals import Problem, Submission

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Part:
    """Results of a call or of some steps of a stream, with the problem and inputs to judge them by. Keys: DirectML's fields."""

    problem: Problem
    arrays: Arrays
    results: Arrays


@dataclass(frozen=True)
class Face:
    """A way to call vkdml. takes: whether it can run an operator. arguments: makes a call's arguments, by name. run: makes the
    call with values for these arguments, of which some may be broken.

    has_layout: it supports ONNX's layout 1. begins_with_work: a broken call may execute something before it is refused.
    keeps_wrong: broken calls would leave something compiled in memory, so none are drawn. blamed: returns the names of the
    arguments that may be wrong when an error has this field.
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
    """Raise AssertionError at the end of the context if vkdml executed or compiled anything in it."""
    gpu, submitted = device().gpu, []
    before, run = gpu.pipelines_made, Submission.run

    def counted(self: Submission, *meanwhile: Callable[[], None]) -> None:
        submitted.append(self)
        run(self, *meanwhile)

    with patch.object(Submission, "run", counted):
        yield
    assert not submitted, "a broken call was executed before it was refused"
    assert gpu.pipelines_made == before, "a broken call was compiled before it was refused"
