"""What is forced at random runs right, or is refused by its name. `python -m vkdml_lab.fuzz.options` makes many more draws."""

import pytest

from vkdml_lab.fuzz import options


@pytest.mark.parametrize("seed", range(6))
def test_random_options(device, seed):
    options.run(device, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6, 100))
def test_more_random_options(device, seed):
    options.run(device, seed)
