"""Forecasts that know how far the truth may lie, but no whole distribution: quantiles, expected errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from doubtless.errors import InputError, UndefinedError
from doubtless.forecast.base import Floats, Forecast


@dataclass(frozen=True, eq=False)
class Quantiles(Forecast):
    """Quantiles of each segment's score (quantile regression).

    Crossing quantiles are sorted; ``crossings`` counts the rows in which that was needed. Between given
    levels quantiles are interpolated; beyond them the outermost ones are all that is known.

    Parameters
    ----------
    levels
        Increasing levels between 0 and 1, for example ``(0.05, 0.5, 0.95)``.
    values
        One row a segment, one column a level.
    symmetric
        Take the middle of the outer quantiles as the score instead of the median.
    floor
        Smallest spread that is believed.

    Examples
    --------
    >>> forecast = Quantiles((0.05, 0.5, 0.95), [[0.1, 0.4, 0.9]])
    >>> [side.round(2).tolist() for side in forecast.spread(0.1)]
    [[0.3], [0.5]]
    """

    levels: tuple[float, ...]
    values: Floats
    symmetric: bool = False
    crossings: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = tuple(float(level) for level in self.levels)
        if list(levels) != sorted(set(levels)) or not all(0 < level < 1 for level in levels):
            raise InputError(f"quantile levels must increase and lie between 0 and 1, found {levels}")
        values = self.values
        if values.ndim != 2 or values.shape[1] != len(levels):
            raise InputError(f"{len(levels)} levels need as many columns of quantiles")
        object.__setattr__(self, "levels", levels)
        crossing = (np.diff(values, axis=1) < 0).any(axis=1)
        if crossing.any():
            object.__setattr__(self, "values", np.sort(values, axis=1))
            object.__setattr__(self, "crossings", int(crossing.sum()))

    @cached_property
    def score(self) -> Floats:
        """The median, or the middle of the outer quantiles if ``symmetric``."""
        if self.symmetric:
            return (self.values[:, 0] + self.values[:, -1]) / 2
        return self.quantile(0.5)

    def raw_spread(self, alpha: float) -> tuple[Floats, Floats]:
        """Distances from the score to the quantiles alpha/2 and 1 - alpha/2, or to the outermost known."""
        low = self.quantile(max(alpha / 2, self.levels[0]))
        high = self.quantile(min(1 - alpha / 2, self.levels[-1]))
        return self.score - low, high - self.score

    def quantile(self, p: float) -> Floats:
        """The value below which a share p lies, interpolated between the given levels."""
        if not self.levels[0] <= p <= self.levels[-1]:
            raise UndefinedError(
                f"quantile {p} lies outside the known levels {self.levels[0]} to {self.levels[-1]}"
            )
        right = min(int(np.searchsorted(self.levels, p)), len(self.levels) - 1)
        left = max(right - 1, 0)
        if self.levels[right] == p or left == right:
            return self.values[:, right]
        share = (p - self.levels[left]) / (self.levels[right] - self.levels[left])
        return (1 - share) * self.values[:, left] + share * self.values[:, right]


@dataclass(frozen=True, eq=False)
class ErrorEstimate(Forecast):
    """A score and an estimate of its absolute error, which itself is the spread, at every alpha.

    Instant confidence, direct uncertainty prediction and back-translation distance give these.

    Parameters
    ----------
    estimate, error
        The score and its expected absolute error (higher is worse).
    floor
        Smallest spread that is believed.

    Examples
    --------
    >>> ErrorEstimate([0.7], [0.2]).spread(0.1)[0]
    array([0.2])
    """

    estimate: Floats
    error: Floats

    @property
    def score(self) -> Floats:
        """The estimate."""
        return self.estimate

    def raw_spread(self, alpha: float) -> tuple[Floats, Floats]:
        """The estimated error either way, whatever alpha."""
        return self.error, self.error
