"""Counts of the tree and of what a call passes through."""

from __future__ import annotations

import json
import subprocess
import sys

from vkdml_lab.bench import house


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
