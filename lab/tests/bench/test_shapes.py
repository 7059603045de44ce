"""Tests bench/shapes.py, which times calls of random T and B: its table, and the shapes that it draws."""

import json

import numpy as np
import pytest

from vkdml_lab.bench import shapes

pytestmark = pytest.mark.device


@pytest.mark.thorough
def test_random_shapes(tmp_path, capsys, monkeypatch):
    small = {name: shapes.Model(model.cell, model.gates, 2, 8, model.shapes) for name, model in shapes.MODELS.items()}
    monkeypatch.setattr(shapes, "MODELS", small)
    shapes.main(["--shapes", "5", "--sentences", "3", "--json", str(tmp_path / "numbers.json")])
    rows = json.loads((tmp_path / "numbers.json").read_text())["rows"]
    assert [(row["model"], row["library"], row["shapes"]) for row in rows] == [
        (model, library, count) for model, count in zip(small, (5, 3)) for library in ("vkdml", "onnxruntime-cpu")]
    ours, theirs = rows[:2]
    assert 0 <= ours["in the second half"] <= ours["pipelines"]
    assert theirs["pipelines"] == 0
    assert ours["p50 ms"] <= ours["p90 ms"] <= ours["p99 ms"] <= ours["max ms"]
    assert "p99/p50" in capsys.readouterr().out


@pytest.mark.parametrize("name", shapes.MODELS)
def test_shapes_are_the_same_each_time_and_in_bounds(name):
    first, second = (shapes.MODELS[name].shapes(np.random.default_rng(1), 200) for _ in range(2))
    assert first == second
    assert all(1 <= t <= shapes.LONGEST and 1 <= b <= shapes.LARGEST_BATCH for t, b in first)
