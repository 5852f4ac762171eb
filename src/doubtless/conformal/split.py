"""Split conformal prediction (Papadopoulos 2008; Zerva & Martins 2024, section 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, inf
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.forecast import Forecast

Floats = np.ndarray[Any, np.dtype[np.float64]]
Side = Literal["both", "lower", "upper"]
Bounds = tuple[float, float]

UNBOUNDED: Bounds = (-inf, inf)


def exact(alpha: float) -> Fraction:
    """The decimal that was meant: 0.1 is one tenth, not the binary number next to it.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    level = Fraction(repr(float(alpha)))
    if not 0 < level < 1:
        raise InputError(f"alpha must lie between 0 and 1, found {alpha}")
    return level


def rank(n: int, alpha: Fraction) -> int:
    """Rank of the calibration score that bounds a new one with probability 1 - alpha.

    ``rank(9, Fraction(1, 10)) == 9``; a rank above ``n`` means that n is too small for alpha.
    """
    return ceil((n + 1) * (1 - alpha))


def smallest_calibration(alpha: float) -> int:
    """The fewest calibration rows that give a bounded interval.

    >>> smallest_calibration(0.1)
    9
    """
    level = exact(alpha)
    return ceil((1 - level) / level)


def conformal_quantile(scores: Floats, alpha: float) -> float:
    """The ``rank(n, alpha)``-th smallest score; infinite when n is too small for alpha."""
    k = rank(len(scores), exact(alpha))
    return float(np.partition(scores, k - 1)[k - 1]) if k <= len(scores) else inf


def nonconformity(forecast: Forecast, human: ArrayLike, alpha: float, side: Side = "both") -> Floats:
    """How far each human score lies from the forecast, in units of the forecast's spread.

    Equations 2 and 5 for ``both``; for one-sided intervals the signed distance towards that side.
    """
    y = checked_human(human, len(forecast))
    below, above = forecast.spread(alpha)
    residual = y - forecast.score
    if side == "upper":
        return residual / above
    if side == "lower":
        return -residual / below
    if above is not below:
        # In place on the larger side's array: no further temporaries for long tables.
        return np.where(residual >= 0, residual / above, -residual / below)
    np.abs(residual, out=residual)
    residual /= below
    return residual


def checked_human(human: ArrayLike, n: int) -> Floats:
    """Return human scores as finite numbers, one a row of the forecast."""
    y = np.asarray(human, dtype=np.float64)
    if y.shape != (n,):
        raise InputError(f"{y.size} human scores for {n} forecasts")
    if not np.isfinite(y).all():
        raise InputError(
            f"the human score in row {int(np.isfinite(y).argmin()) + 1} is missing or not finite"
        )
    return y


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of segments, and what is to be said of them.

    ``unbounded`` marks rows for which the calibration set was too small (their ends are the declared
    bounds or infinite), ``fallback`` rows whose group was unseen or too small and was treated by policy.
    """

    lower: Floats
    upper: Floats
    unbounded: np.ndarray
    fallback: np.ndarray

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def width(self) -> Floats:
        """Upper minus lower end."""
        return self.upper - self.lower

    def covers(self, human: ArrayLike) -> np.ndarray:
        """Whether each human score lies in its interval, ends included."""
        y = np.asarray(human)
        return (self.lower <= y) & (y <= self.upper)


# A human score whose nonconformity equals the factor must lie inside: these few units in the last place
# make up for the rounding of (y - score) / spread and back.
_ROUNDING = 1 + 4 * np.finfo(np.float64).eps


def widen(
    forecast: Forecast,
    factor: Floats | float,
    alpha: float,
    side: Side = "both",
    bounds: Bounds = UNBOUNDED,
    fallback: np.ndarray | None = None,
) -> Intervals:
    """Intervals whose ends lie ``factor`` spreads from the score (equations 4 and 6)."""
    below, above = forecast.spread(alpha)
    n = len(forecast)
    # An exact zero times an infinite factor cannot occur: spreads are positive.
    outward = np.asarray(factor) * _ROUNDING if np.ndim(factor) or np.isfinite(factor) else np.asarray(factor)
    outward = np.where(outward < 0, np.asarray(factor) / _ROUNDING, outward)
    lower = _end(forecast.score, -outward, below, bounds) if side != "upper" else np.full(n, bounds[0])
    upper = _end(forecast.score, outward, above, bounds) if side != "lower" else np.full(n, bounds[1])
    infinite = np.broadcast_to(np.isposinf(factor), n)
    return Intervals(lower, upper, infinite, np.zeros(n, dtype=bool) if fallback is None else fallback)


def _end(score: Floats, factor: Floats, spread: Floats, bounds: Bounds) -> Floats:
    end = factor * spread
    end += score
    np.nextafter(end, np.copysign(np.inf, factor), out=end)
    if bounds != UNBOUNDED:
        np.clip(end, *bounds, out=end)
    return end


@dataclass(frozen=True)
class SplitConformal:
    """Widen every forecast by one factor so that a share 1 - alpha of new segments is covered.

    Parameters
    ----------
    alpha
        Share of new segments that may fall outside.
    side
        ``both``, or only a ``lower`` or an ``upper`` bound on quality.
    bounds
        Range of the human scores, if declared: intervals are cut to it.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> forecast = Gaussian(np.zeros(9), np.ones(9))
    >>> fitted = SplitConformal(alpha=0.1).fit(forecast, np.arange(9.0))
    >>> float(fitted.intervals(forecast[:1]).upper.round(6)[0])
    8.0
    """

    alpha: float = 0.1
    side: Side = "both"
    bounds: Bounds = UNBOUNDED

    def __post_init__(self) -> None:
        exact(self.alpha)
        if self.side not in ("both", "lower", "upper"):
            raise InputError(f"side must be both, lower or upper, found '{self.side}'")
        if not self.bounds[0] < self.bounds[1]:
            raise InputError(f"the score range {self.bounds[0]} to {self.bounds[1]} is empty")

    def fit(self, forecast: Forecast, human: ArrayLike) -> FittedSplit:
        """Calibrate on forecasts with human scores that no estimator was trained on."""
        scores = nonconformity(forecast, human, self.alpha, self.side)
        return FittedSplit(
            self.alpha, conformal_quantile(scores, self.alpha), len(scores), self.side, self.bounds
        )


@dataclass(frozen=True)
class FittedSplit:
    """A calibrated split conformal predictor: one factor, from n calibration rows."""

    alpha: float
    factor: float
    n: int
    side: Side = "both"
    bounds: Bounds = UNBOUNDED
    kind: str = field(default="split", init=False)

    def intervals(self, forecast: Forecast, groups: Any = None) -> Intervals:
        """Return the interval of each new segment; groups, if given, make no difference."""
        return widen(forecast, self.factor, self.alpha, self.side, self.bounds)


def p_values(calibration: ArrayLike, new: ArrayLike, seed: int | None = None) -> Floats:
    """Conformal p-values of new nonconformity scores: small where a score is unusually large.

    ``(1 + #{calibration >= new}) / (n + 1)``; with a seed, ties are broken at random, which makes the
    p-values exactly uniform under exchangeability. O((n + m) log n).

    >>> p_values([1.0, 2.0, 3.0], [2.0, 9.0])
    array([0.75, 0.25])
    """
    ordered = np.sort(np.asarray(calibration, dtype=np.float64))
    scores = np.asarray(new, dtype=np.float64)
    n = len(ordered)
    smaller = np.searchsorted(ordered, scores, side="left")
    if seed is None:
        return (n - smaller + 1) / (n + 1)
    larger = n - np.searchsorted(ordered, scores, side="right")
    ties = n - smaller - larger + 1
    return (larger + np.random.default_rng(seed).random(len(scores)) * ties) / (n + 1)
