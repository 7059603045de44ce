"""Arithmetic on positive whole numbers."""

from __future__ import annotations


def ceil_div(value: int, divisor: int) -> int:
    """value / divisor, rounded up."""
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not less than value."""
    return ceil_div(value, multiple) * multiple


def power_of_two(value: int) -> int:
    """The smallest power of two that is not less than value."""
    return 1 << (value - 1).bit_length()
