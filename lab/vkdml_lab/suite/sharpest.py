"""Makes each test of random problems a family: one test for each seed. `make test` runs the seeds that find most mistakes."""

import json
from pathlib import Path

import pytest

PATH = Path(__file__).with_name("sharpest.json")
SEEDS: dict[str, list[int]] = json.loads(PATH.read_text())["seeds"]  # by test, the sharpest first


def drawn(reason, count):
    """Return a decorator that runs a test with all seeds below `count`; `make test` runs only the seeds in sharpest.json."""
    def marked(test):
        chosen = [seed for seed in SEEDS.get(test.__name__, ()) if seed < count]
        seeds = [*chosen, *sorted(set(range(count)) - set(chosen))]
        return pytest.mark.family(reason, first=len(chosen))(pytest.mark.parametrize("seed", seeds)(test))

    return marked
