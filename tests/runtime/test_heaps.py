"""Random recordings over shared heaps leave on host and device, byte by byte, what the model in heaps.py says."""

from collections import Counter

import numpy as np

from tests import support
from tests.runtime import heaps
from tests.runtime.marks import needs_ranges

pytestmark = needs_ranges


def search(device, draws, seed=0):
    """Run so many programs. Returns how often was compared what. Raises at the first that fails, made short."""
    counts, reference = Counter(), heaps.Reference(device)

    def error_of(actions):
        try:
            heaps.Run(device, reference, counts).run(actions)
        except Exception as error:
            return error
        return None

    for draw in range(draws):
        counts["programs"] += 1
        actions = heaps.program(support.random_numbers(seed, draw))
        if error_of(actions):
            short = heaps.shortened(actions, error_of)
            raise AssertionError(f"draw {draw} of seed {seed}: {short}") from error_of(short)
    return counts


def test_random_recordings(device, memory):
    print(search(device, 1500))
