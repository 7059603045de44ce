"""Functions that translated kernels call. `place` is the number of a place in the code, for reports.

A value is an array with an element for each lane of a wave, or one numpy scalar for all of them; a composite is a tuple of
values. A mask is None for all lanes, False for none, or an array of bools, of which some are true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

np.seterr(all="ignore")
Array = np.ndarray
count = np.count_nonzero  # the fastest test for any or all
Mask = Any  # None, False or an array
DTYPES: dict[str, Any] = {"u16": np.uint16, "u32": np.uint32, "i32": np.int32, "f32": np.float32, "bool": np.bool_}


class Invocations(Protocol):
    """What simulated memory uses of a wave (subgroup). invocations, workgroups: each lane's number. noise: random values."""

    lanes: int
    invocations: np.ndarray
    workgroups: np.ndarray
    report: Callable[..., None]

    def noise(self, dtype: Any) -> np.ndarray: ...


def split(mask: Mask, condition: Any) -> tuple[Mask, Mask]:
    """Return two masks: of the lanes of `mask` where the condition holds, and of the other lanes of `mask`."""
    if condition.__class__ is not Array:
        return (mask, False) if condition else (False, mask)
    yes = condition if mask is None else condition & mask
    if not count(yes):
        return False, mask
    no = ~condition if mask is None else mask & ~condition
    return (yes, no) if count(no) else (mask, False)


def join(a: Mask, b: Mask) -> Mask:
    if a is False or b is None:
        return b
    if b is False or a is None:
        return a
    both = a | b
    return None if count(both) == len(both) else both


def merge(mask: Mask, new: Any, old: Any) -> Any:
    """Return `new` in the lanes of the mask, and `old` in the others."""
    if mask is None:
        return new
    if new.__class__ is tuple:
        return tuple([merge(mask, n, o) for n, o in zip(new, old)])
    return np.where(mask, new, old)


def choose(condition: Any, a: Any, b: Any) -> Any:
    if condition.__class__ is not Array:
        return a if condition else b
    if a.__class__ is tuple:
        return tuple([choose(condition, x, y) for x, y in zip(a, b)])
    return np.where(condition, a, b)


def fill(pattern: dict[str, Any], shape: Any) -> Any:
    """Make a value from scalars. pattern: the scalar of each kind. shape: the value's, as instructions.shape writes it."""
    if shape.__class__ is str:
        return pattern[shape]
    return tuple([fill(pattern, part) for part in shape])


ZEROS = {kind: dtype(0) for kind, dtype in DTYPES.items()}


def _elements(wave: Any, index: Any, length: int, mask: Mask, place: int) -> Sequence[int]:
    """Return the different indices in the lanes of the mask, in order. Those out of bounds are reported and left out."""
    wanted = [int(index)] if index.__class__ is not Array else np.unique(index if mask is None else index[mask]).tolist()
    if wanted[-1] >= length:
        wave.report("out of bounds: an array", place, f"element {wanted[-1]} of {length}")
    return [element for element in wanted if element < length]


def pick(wave: Any, value: tuple[Any, ...], index: Any, mask: Mask, place: int) -> Any:
    """Return, for each lane, the element of `value` at the lane's index. Indices out of bounds are reported with `place`."""
    elements = _elements(wave, index, len(value), mask, place) or [0]
    found = value[elements[0]]
    for number in elements[1:]:
        found = choose(index == number, value[number], found)
    return found


def put(wave: Any, value: tuple[Any, ...], path: Sequence[Any], new: Any, mask: Mask, place: int) -> Any:
    """Return a copy of the tuple `value` with `new` at the indices `path`, in the lanes of the mask."""
    if not path:
        return merge(mask, new, value)
    index, rest = path[0], path[1:]
    if index.__class__ is int:
        return (*value[:index], put(wave, value[index], rest, new, mask, place), *value[index + 1:])
    parts = list(value)
    for number in _elements(wave, index, len(value), mask, place):
        here = mask if index.__class__ is not Array else split(mask, index == number)[0]
        parts[number] = put(wave, parts[number], rest, new, here, place)
    return tuple(parts)


# Integers

def _checked(operation: Any, is_bad: Callable[[Any], Any], instead: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that does the operation, such as a division. Where is_bad(b), it reports that and uses instead(b)."""
    def function(wave: Any, a: Any, b: Any, mask: Mask, place: int) -> Any:
        bad = is_bad(b)
        if count(bad):
            if split(mask, bad)[0] is not False:
                wave.report("undefined: a division by 0, or a shift by 32 or more", place)
            b = np.where(bad, instead(b), b).astype(np.uint32)
        return operation(a, b)
    return function


udiv, umod = (_checked(operation, lambda b: b == 0, lambda b: 1) for operation in (operator.floordiv, operator.mod))
shift_left, shift_right = (_checked(operation, lambda b: b >= 32, lambda b: b & np.uint32(31))
                           for operation in (operator.lshift, operator.rshift))


def add_carry(a: Any, b: Any) -> tuple[Any, Any]:
    return a + b, (a + b < a).astype(np.uint32)


def sub_borrow(a: Any, b: Any) -> tuple[Any, Any]:
    return a - b, (a < b).astype(np.uint32)


def to_whole(wave: Any, x: Any, kind: str) -> Any:
    """Convert floats to integers of `kind`. A float out of its range becomes the wave's pattern, an arbitrary value."""
    info = np.iinfo(DTYPES[kind])
    exists = (x > np.float64(info.min) - 1) & (x < np.float64(info.max) + 1)
    return np.where(exists, np.where(exists, x, 0).astype(np.int64).astype(DTYPES[kind]), wave.pattern[kind])[()]
