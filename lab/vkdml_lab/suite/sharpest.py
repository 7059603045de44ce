"""Families (sets of like tests) with random problems. `make test` runs the few of each that find the most planted mistakes."""

import json
from pathlib import Path

import pytest

PATH = Path(__file__).with_name("sharpest.json")
SEEDS: dict[str, list[int]] = json.loads(PATH.read_text())["seeds"]  # by test, the sharpest first


def drawn(reason, count):
    """Mark a test to run with all seeds below `count`. Those in sharpest.json come first; `make test` runs only these."""
    def marked(test):
        chosen = [seed for seed in SEEDS.get(test.__name__, ()) if seed < count]
        seeds = [*chosen, *sorted(set(range(count)) - set(chosen))]
        return pytest.mark.family(reason, first=len(chosen))(pytest.mark.parametrize("seed", seeds)(test))

    return marked
