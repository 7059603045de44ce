"""What a way in is to the fuzzer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import vkdml
from tests.fuzz.breaking import Argument
from tests.fuzz.calls import Call, Operator
from vkdml.operators.problem import Problem

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
    before what may be broken.
    """

    takes: Callable[[Operator], bool]
    arguments: Callable[[Call], dict[str, Argument]]
    run: Callable[[Call, dict[str, Any]], list[Part]]
    has_layout: bool = False
    begins_with_work: bool = False


@cache
def device() -> vkdml.Device:
    return vkdml.Device()
