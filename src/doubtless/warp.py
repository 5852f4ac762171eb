"""Monotone warpings between a score's scale and one on which it is Gaussian (Snelson et al. 2004)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

_MOST_STEPS = 200


class Warp(Protocol):
    """A strictly increasing function f, its inverse and the logarithm of its derivative."""

    def forward(self, y: Floats) -> Floats:
        """f(y), on the Gaussian scale; NaN where y lies outside the domain."""
        ...

    def inverse(self, z: Floats) -> Floats:
        """The y with f(y) = z."""
        ...

    def log_derivative(self, y: Floats) -> Floats:
        """log f'(y)."""
        ...


@dataclass(frozen=True)
class LogWarp:
    """f(y) = log y, for positive labels such as times.

    >>> float(LogWarp().inverse(np.array([0.0]))[0])
    1.0
    """

    def forward(self, y: Floats) -> Floats:
        """Log y; NaN where y is not positive."""
        return np.log(np.where(y > 0, y, np.nan))

    def inverse(self, z: Floats) -> Floats:
        """Exp z."""
        return np.exp(z)

    def log_derivative(self, y: Floats) -> Floats:
        """Log 1/y."""
        return -self.forward(y)


@dataclass(frozen=True)
class TanhWarp:
    """f(y) = y + sum_i a_i tanh(b_i (y + c_i)) with a_i, b_i >= 0, hence increasing everywhere.

    >>> warp = TanhWarp(a=(1.0,), b=(2.0,), c=(0.5,))
    >>> y = np.array([-3.0, 0.0, 4.0])
    >>> bool(np.allclose(warp.inverse(warp.forward(y)), y))
    True
    """

    a: tuple[float, ...]
    b: tuple[float, ...]
    c: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.a) == len(self.b) == len(self.c):
            raise ValueError("a, b and c need the same number of terms")
        if min((*self.a, *self.b), default=0.0) < 0:
            raise ValueError("a and b must not be negative: the warping would not be monotone")

    def forward(self, y: Floats) -> Floats:
        """f(y)."""
        return y + sum((a * np.tanh(b * (y + c)) for a, b, c in self._terms()), np.zeros_like(y))

    def log_derivative(self, y: Floats) -> Floats:
        """log(1 + sum a b sech^2(b (y + c)))."""
        slope = np.zeros_like(y)
        for a, b, c in self._terms():
            slope += a * b / np.cosh(np.clip(b * (y + c), -350, 350)) ** 2
        return np.log1p(slope)

    def inverse(self, z: Floats) -> Floats:
        """Solve f(y) = z by Newton steps inside a bracket: f(y) - y lies within the sum of the a."""
        z = np.asarray(z, dtype=np.float64)
        reach = sum(self.a)
        low, high = z - reach, z + reach
        y, last = z.copy(), high - low
        moving = np.ones(z.shape, dtype=bool)
        for _ in range(_MOST_STEPS):
            gap = self.forward(y) - z
            low, high = np.where(gap <= 0, y, low), np.where(gap >= 0, y, high)
            step = y - gap * np.exp(-self.log_derivative(y))
            # Where Newton leaves the bracket or does not halve its step (f is steep beside flat, and it may
            # go round in circles), halve the bracket instead.
            sound = (step > low) & (step < high) & (2 * np.abs(step - y) <= last)
            step = np.where(sound, step, (low + high) / 2)
            last = np.abs(step - y)
            # A row that has arrived stays, so that its value does not depend on the rows beside it.
            moving &= np.abs(step - y) > 1e-15 * np.maximum(1.0, np.abs(y))
            if not moving.any():
                break
            y = np.where(moving, step, y)
        return y

    def _terms(self) -> zip[tuple[float, float, float]]:
        return zip(self.a, self.b, self.c, strict=True)
