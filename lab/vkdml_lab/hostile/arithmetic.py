"""Computes like a CPU driver, or as inexactly as Vulkan's "Precision and Operation of SPIR-V Instructions" allows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_LEAST, _LEAST_HALF = np.float32(2.0**-126), np.float32(2.0**-14)  # the smallest normal numbers
NEAREST, ZERO, EITHER = "nearest", "toward zero", "either neighbour"
NONE, HIGH, LOW, EXTREME, RANDOM = "none", "high", "low", "extreme", "random"


@dataclass
class Arithmetic:
    """How a device computes. errors: how far functions and quotients are off: not at all, by a random part of the allowed
    error, or by all of it, upward, downward or at random. scale: multiplies the allowed error. flushes: denormals count as 0.
    folds: the compiler assumes that no number is NaN, which kernels do not forbid by SignedZeroInfNanPreserve. Then comparisons
    with NaN give anything (so isnan() finds none), 0 times NaN is 0, and exp and log of NaN are numbers. fuses: fma() rounds
    once. contracting: the probability that a product and a sum at one place of the code are fused.
    """

    seed: int = 0
    rounding: str = NEAREST
    errors: str = NONE
    flushes: bool = False
    folds: bool = False
    fuses: bool = False
    contracting: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self._contracted: dict[int, bool] = {}
        for name in ("eq", "ne", "lt", "gt", "le", "ge"):
            setattr(self, name, self._compares(getattr(operator, name)))
        if self.rounding == NEAREST and not self.flushes:
            for name in ("add", "sub") if self.folds else ("add", "sub", "mul"):
                setattr(self, name, getattr(operator, name))

    def contracts(self, place: int) -> bool:
        return self.contracting > 0 and self._contracted.setdefault(place, bool(self.random.random() < self.contracting))

    def flush(self, x: Any, least: Any = _LEAST) -> Any:
        if not self.flushes:
            return x
        tiny = np.abs(x) < least
        return np.where(tiny, np.copysign(np.float32(0), x), x)[()] if tiny.any() else x

    def _compares(self, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def compared(a: Any, b: Any) -> Any:
            a, b = self.flush(a), self.flush(b)
            return self._folded(compare(a, b), np.isnan(a) | np.isnan(b))

        return compared if self.flushes or self.folds else compare

    def _folded(self, found: Any, is_nan: Any) -> Any:
        """Return `found`; but if the device assumes that there is no NaN, 0 or 1 at random where an operand is NaN."""
        if not (self.folds and is_nan.any()):
            return found
        return np.where(is_nan, self.random.integers(2, size=np.shape(found)), found).astype(found.dtype)[()]

    def _product(self, a: Any, b: Any) -> Any:
        """Return the product as float64. If the device assumes no NaN, 0 in all lanes times anything is 0."""
        is_0 = self.folds and any(factor.__class__ is not np.ndarray and factor == 0 for factor in (a, b))
        return np.float64(0) if is_0 else self._wide(a) * self._wide(b)

    def _wide(self, x: Any) -> Any:
        return self.flush(x).astype(np.float64)

    def rounded(self, exact: Any) -> Any:
        """Round a float64 to float32 as this device does."""
        near = exact.astype(np.float32)
        wide = near.astype(np.float64)
        inexact = (wide != exact) & np.isfinite(exact)  # too large numbers become infinity or the largest number
        if self.rounding == ZERO:
            near = np.where(inexact & (np.abs(wide) > np.abs(exact)), np.nextafter(near, np.float32(0)), near)
        elif self.rounding == EITHER:
            other = np.nextafter(near, np.where(exact > wide, np.inf, -np.inf).astype(np.float32))
            near = np.where(inexact & (self.random.random(np.shape(exact)) < 0.5), other, near)
        return self.flush(near[()])

    def _sum(self, a: Any, b: Any) -> Any:
        """Add two float64 and round once, to float32: an inexact float64 sum is first rounded to odd, which loses nothing."""
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
        odd = np.asarray(total).view(np.int64) & 1 != 0
        away = (error != 0) & ~odd & np.isfinite(total) & np.isfinite(error)
        return self.rounded(np.where(away, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)[()])

    def add(self, a: Any, b: Any) -> Any:
        return self._sum(self._wide(a), self._wide(b))

    def sub(self, a: Any, b: Any) -> Any:
        return self.add(a, -b)

    def mul(self, a: Any, b: Any) -> Any:
        return self.rounded(self._product(a, b))

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        return self._sum(self._product(a, b), self._wide(c))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.fused(a, b, c) if self.fuses else self.add(self.mul(a, b), c)

    def _inexact(self, exact: Any, ulps: Any, absolute: Any = None) -> Any:
        """Return `exact` as float32, off by up to `absolute`, or by up to `ulps` ULP where `absolute` is None or NaN."""
        if self.errors == NONE:
            return self.flush(exact.astype(np.float32))
        shape = np.shape(exact)
        share: Any = {HIGH: 1.0, LOW: -1.0}.get(self.errors)
        if share is None:
            share = self.random.choice([-1.0, 1.0], shape) if self.errors == EXTREME else self.random.uniform(-1, 1, shape)
        allowed = ulps * np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
        error = share * self.scale * (allowed if absolute is None else np.where(np.isnan(absolute), allowed, absolute))
        return self.flush((exact + np.where(np.isfinite(error), error, 0)).astype(np.float32)[()])

    def div(self, a: Any, b: Any) -> Any:
        return self._inexact(self._wide(a) / self._wide(b), 2.5)

    def exp(self, x: Any) -> Any:
        wide = self._wide(x)
        return self._folded(np.maximum(self._inexact(np.exp(wide), 3 + 2 * np.abs(wide)), np.float32(0)), np.isnan(x))

    def log(self, x: Any) -> Any:
        wide = self._wide(x)
        found = self._inexact(np.log(wide), 3, np.where((wide >= 0.5) & (wide <= 2), 2.0**-21, np.nan))
        return self._folded(found, np.isnan(x))

    def unpack_half(self, word: Any) -> tuple[Any, ...]:
        """Return the two float16 in a word as float32. If the device flushes denormals, those of float16 become 0."""
        halves = (((word >> np.uint32(shift)) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16) for shift in (0, 16))
        return tuple(self.flush(half.astype(np.float32), _LEAST_HALF) for half in halves)
