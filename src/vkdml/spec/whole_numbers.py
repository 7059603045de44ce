"""Arithmetic of whole numbers."""

from __future__ import annotations


def ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    return ceil_div(value, multiple) * multiple


def power_of_two(value: int) -> int:
    """The first that is not smaller."""
    return 1 << (value - 1).bit_length()
