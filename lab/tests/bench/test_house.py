"""Counts of the tree and of what a call passes through."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType

import numpy as np

from vkdml_lab.bench import house

MADE_UP = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Base:
    size: int
    def doubled(self):
        return 2 * self.size

class Derived(Base):
    pass
"""


def test_a_call_outside_of_the_package_passes_through_nothing():
    assert house.passed_through(lambda: np.zeros(3)) == (0, 0, 0, 0)


def test_a_call_counts_each_class_by_type_of_self(monkeypatch):
    module = ModuleType("vkdml.made_up")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(MADE_UP, module.__dict__)
    assert house.passed_through(lambda: [module.Base(1).doubled() for _ in range(2)]) == (1, 1, 2, 1)  # __init__ and doubled
    assert house.passed_through(lambda: [hash(module.Base(1)), module.Derived(1).doubled()]) == (1, 2, 3, 1)
    assert house.passed_through(module.Derived(1).doubled) == (1, 1, 1, 1)


def test_an_include_counts_with_what_it_includes():
    names = {path.name for path in house.included(house.GRU_ON_A_GPU)}
    assert {house.GRU_ON_A_GPU.name, "products.glsl", "numbers.glsl"} <= names


def test_what_gru_passes_through_is_bounded(device, tmp_path):
    """In a process of its own, where the first call is the first, and in another folder."""
    program = f"import json; from {house.__name__} import passed_by_gru; print(json.dumps(passed_by_gru()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    for which, counts in json.loads(done.stdout).items():
        passed, bounds = house.Passed(*counts), house.BOUNDS[which]
        assert 0 < passed.modules <= bounds.modules, which
        assert 0 < passed.classes <= bounds.classes, which
