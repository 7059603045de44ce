"""Counts of the tree and of what a call passes through."""

from __future__ import annotations

import numpy as np

from vkdml.errors import InvalidArgumentError
from vkdml_lab.bench.house import GRU_ON_A_GPU, included, passed_through


def test_a_call_outside_of_the_package_passes_through_nothing():
    assert passed_through(lambda: np.zeros(3)) == [0, 0, 0, 0]


def test_a_call_counts_each_module_class_and_function_once():
    def call():
        for _ in range(2):
            str(InvalidArgumentError("where", "field", "found", "allowed"))

    assert passed_through(call)[:3] == [1, 1, 2]  # __init__ and shown, in errors


def test_an_include_counts_with_what_it_includes():
    names = {path.name for path in included(GRU_ON_A_GPU)}
    assert {GRU_ON_A_GPU.name, "products.glsl", "numbers.glsl"} <= names
