"""Arithmetic: as CPU drivers do it, and at the worst that Vulkan's "Precision and Operation of SPIR-V Instructions" allows."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

_LEAST, _LEAST_HALF = np.float32(2.0**-126), np.float32(2.0**-14)  # normal numbers
NEAREST, ZERO, EITHER = "nearest", "toward zero", "either neighbour"
NONE, HIGH, LOW, EXTREME, RANDOM = "none", "high", "low", "extreme", "random"


def _halves(word: Any) -> tuple[Any, ...]:
    return tuple(((word >> np.uint32(shift)) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float32)
                 for shift in (0, 16))


class Exact:
    """Each operation rounded to nearest, functions too, nothing contracted."""

    add, sub, mul, div = (staticmethod(function) for function in (operator.add, operator.sub, operator.mul, operator.truediv))
    eq, ne, lt, gt, le, ge = (staticmethod(function) for function in (
        operator.eq, operator.ne, operator.lt, operator.gt, operator.le, operator.ge))
    isnan, unpack_half = staticmethod(np.isnan), staticmethod(_halves)

    @staticmethod
    def exp(x: Any) -> Any:
        return np.exp(x.astype(np.float64)).astype(np.float32)

    @staticmethod
    def log(x: Any) -> Any:
        return np.log(x.astype(np.float64)).astype(np.float32)

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        return a * b + c

    @staticmethod
    def contracts(place: int) -> bool:
        return False

    fused = fma


@dataclass
class Inexact:
    """errors: of functions and quotients, in shares of what is allowed: the whole of it upward, downward or either way, any
    share of it, or none; `scale` times as much. flushes: denormals are 0, in and out. folds: no NaN is told, as no kernel asks
    that NaN be kept. fuses: whether fma() is one operation; other products and sums are one at places drawn by the seed.
    """

    seed: int = 0
    rounding: str = NEAREST
    errors: str = NONE
    flushes: bool = False
    folds: bool = False
    fuses: bool = False
    contracting: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self._contracted: dict[int, bool] = {}

    def contracts(self, place: int) -> bool:
        return self._contracted.setdefault(place, bool(self.random.random() < self.contracting))

    def flush(self, x: Any) -> Any:
        if not self.flushes:
            return x
        tiny = np.abs(x) < _LEAST
        return np.where(tiny, np.copysign(np.float32(0), x), x)[()] if tiny.any() else x

    def rounded(self, exact: Any) -> Any:
        """A float64 as a float32."""
        near = exact.astype(np.float32)
        wide = near.astype(np.float64)
        if self.rounding != NEAREST:
            inexact = (wide != exact) & np.isfinite(exact)  # what is too large becomes infinity, or the largest number
            if self.rounding == ZERO:
                near = np.where(inexact & (np.abs(wide) > np.abs(exact)), np.nextafter(near, np.float32(0)), near)
            else:
                other = np.nextafter(near, np.where(exact > wide, np.inf, -np.inf).astype(np.float32))
                near = np.where(inexact & (self.random.random(np.shape(exact)) < 0.5), other, near)
        return self.flush(near[()])

    def _sum(self, a: Any, b: Any) -> Any:
        """A sum of two float64 with an odd last bit where it is not exact, so that it is rounded once."""
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
        odd = np.asarray(total).view(np.int64) & 1 != 0
        away = (error != 0) & ~odd & np.isfinite(total) & np.isfinite(error)
        return np.where(away, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)[()]

    def add(self, a: Any, b: Any) -> Any:
        if self.rounding == NEAREST:
            return self.flush(self.flush(a) + self.flush(b))
        return self.rounded(self._sum(self.flush(a).astype(np.float64), self.flush(b).astype(np.float64)))

    def sub(self, a: Any, b: Any) -> Any:
        return self.add(a, -b)

    def mul(self, a: Any, b: Any) -> Any:
        if self.rounding == NEAREST:
            return self.flush(self.flush(a) * self.flush(b))
        return self.rounded(self.flush(a).astype(np.float64) * self.flush(b).astype(np.float64))

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        product = self.flush(a).astype(np.float64) * self.flush(b).astype(np.float64)
        return self.rounded(self._sum(product, self.flush(c).astype(np.float64)))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.fused(a, b, c) if self.fuses else self.add(self.mul(a, b), c)

    def _inexact(self, exact: Any, allowed: Any) -> Any:
        """A function's result with an error. allowed: how large it may be."""
        shape = np.shape(exact)
        share: Any = {NONE: 0.0, HIGH: 1.0, LOW: -1.0}.get(self.errors)
        if share is None:
            share = self.random.choice([-1.0, 1.0], shape) if self.errors == EXTREME else self.random.uniform(-1, 1, shape)
        error = share * self.scale * allowed
        return self.flush((exact + np.where(np.isfinite(error), error, 0)).astype(np.float32)[()])

    @staticmethod
    def _ulp(exact: Any) -> Any:
        return np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)

    def div(self, a: Any, b: Any) -> Any:
        exact = self.flush(a).astype(np.float64) / self.flush(b).astype(np.float64)
        return self._inexact(exact, 2.5 * self._ulp(exact))

    def exp(self, x: Any) -> Any:
        wide = self.flush(x).astype(np.float64)
        exact = np.exp(wide)
        return np.maximum(self._inexact(exact, (3 + 2 * np.abs(wide)) * self._ulp(exact)), np.float32(0))

    def log(self, x: Any) -> Any:
        wide = self.flush(x).astype(np.float64)
        exact = np.log(wide)
        return self._inexact(exact, np.where((wide >= 0.5) & (wide <= 2), 2.0**-21, 3 * self._ulp(exact)))

    def isnan(self, x: Any) -> Any:
        return np.zeros(np.shape(x), np.bool_)[()] if self.folds else np.isnan(x)

    def unpack_half(self, word: Any) -> tuple[Any, ...]:
        """Float16's denormals may be flushed too."""
        if not self.flushes:
            return _halves(word)
        return tuple(np.where(np.abs(x) < _LEAST_HALF, np.copysign(np.float32(0), x), x)[()]
                     for x in _halves(word))

    def eq(self, a: Any, b: Any) -> Any:
        return self.flush(a) == self.flush(b)

    def ne(self, a: Any, b: Any) -> Any:
        return self.flush(a) != self.flush(b)

    def lt(self, a: Any, b: Any) -> Any:
        return self.flush(a) < self.flush(b)

    def gt(self, a: Any, b: Any) -> Any:
        return self.flush(a) > self.flush(b)

    def le(self, a: Any, b: Any) -> Any:
        return self.flush(a) <= self.flush(b)

    def ge(self, a: Any, b: Any) -> Any:
        return self.flush(a) >= self.flush(b)
