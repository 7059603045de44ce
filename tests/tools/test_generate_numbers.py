"""The numbers that shaders and Python share are written down once."""

from tools import generate_numbers


def test_numbers_are_those_of_the_tables():
    assert generate_numbers.NUMBERS.read_text() == generate_numbers.text(), "run: python tools/generate_numbers.py"
