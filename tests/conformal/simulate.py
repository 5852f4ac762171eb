"""Simulated segments, to check promises by repetition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from doubtless.conformal.split import Intervals
from doubtless.forecast import ErrorEstimate, Forecast, Quantiles

DRAWS = 2_000


@dataclass(frozen=True)
class Coverage:
    mean: float
    stderr: float

    @classmethod
    def of(cls, shares: list[float]) -> Coverage:
        return cls(float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares))))

    def lies_within(self, low: float, high: float) -> bool:
        return low <= self.mean + 3 * self.stderr and self.mean - 3 * self.stderr <= high


@dataclass(frozen=True)
class Rows:
    """Segments whose human score is far from the forecast where a hidden attribute x is large."""

    forecast: Forecast
    human: np.ndarray
    x: np.ndarray
    group: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator, n: int, symmetric: bool = True, shift: float = 0.0) -> Rows:
        x = rng.beta(1 + shift, 1, n)
        group = rng.integers(0, 2, n)
        score = rng.normal(size=n)
        noise = rng.exponential(1 + 3 * x + 2 * group) - 0.5
        if symmetric:
            forecast: Forecast = ErrorEstimate(score, rng.uniform(0.2, 1, n))
        else:
            ends = np.stack([score - rng.uniform(0.1, 1, n), score, score + rng.uniform(0.1, 2, n)], axis=1)
            forecast = Quantiles((0.05, 0.5, 0.95), ends)
        return cls(forecast, score + noise, x, group)


def simulate(
    make: Callable[[Rows, Rows], Intervals],
    n: int,
    *,
    symmetric: bool = True,
    within: Callable[[Rows], np.ndarray] | None = None,
    tests: int = 50,
    draws: int = DRAWS,
) -> Coverage:
    """Mean coverage over draws of n calibration rows and of new rows (those ``within`` a condition)."""
    rng = np.random.default_rng(n)
    shares = []
    for _ in range(draws):
        known, new = Rows.draw(rng, n, symmetric), Rows.draw(rng, tests, symmetric)
        covered = make(known, new).covers(new.human)
        keep = np.ones(tests, dtype=bool) if within is None else within(new)
        if keep.any():
            shares.append(float(covered[keep].mean()))
    return Coverage.of(shares)
