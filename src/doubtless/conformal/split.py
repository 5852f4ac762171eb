"""Split conformal prediction (Papadopoulos 2008; Zerva & Martins 2024, section 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, inf
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.forecast import Forecast, first_not_finite

Floats = np.ndarray[Any, np.dtype[np.float64]]
Side = Literal["both", "lower", "upper"]
Bounds = tuple[float, float]

UNBOUNDED: Bounds = (-inf, inf)


def exact(alpha: float) -> Fraction:
    """The decimal that was meant: 0.1 is one tenth, not the binary number next to it.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, found {alpha}")
    return Fraction(repr(float(alpha)))


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
    """The ``rank(n, alpha)``-th smallest score; infinite when n is too small for alpha.

    The scores come back in another order: this is where the time of a calibration goes.
    """
    return at_rank(scores, rank(len(scores), exact(alpha)))


def at_rank(scores: Floats, k: int) -> float:
    """The k-th smallest score, infinite if there are fewer; the scores come back in another order."""
    if k > len(scores):
        return inf
    scores.partition(k - 1)
    return float(scores[k - 1])


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
        return np.where(residual >= 0, residual / above, -residual / below)
    np.abs(residual, out=residual)
    residual /= below
    return residual


def checked_human(human: ArrayLike, n: int) -> Floats:
    """Return human scores as finite numbers, one a row of the forecast."""
    y = np.asarray(human, dtype=np.float64)
    if y.shape != (n,):
        raise InputError(f"{y.size} human scores for {n} forecasts")
    row = first_not_finite(y)
    if row is not None:
        raise InputError(f"the human score in row {row + 1} is missing or not finite")
    return y


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of segments, and what is to be said of them.

    ``unbounded`` marks rows without a factor of their own (their ends are the declared bounds or infinite);
    ``unseen`` and ``small`` mark rows whose group had no, or too few, calibration rows and was treated by
    policy.
    """

    lower: Floats
    upper: Floats
    unbounded: np.ndarray
    unseen: np.ndarray
    small: np.ndarray

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


def widen(
    forecast: Forecast,
    factors: Floats | float,
    alpha: float,
    side: Side = "both",
    bounds: Bounds = UNBOUNDED,
    *,
    cells: np.ndarray | None = None,
) -> Intervals:
    """Intervals whose ends lie a factor of spreads from the score (equations 4 and 6).

    ``factors`` is one number, or several of which ``cells`` says which one each row takes.
    """
    below, above = forecast.spread(alpha)
    n = len(forecast)
    table = _outward(np.asarray(factors, dtype=np.float64))
    factor = table if cells is None else table[cells]
    reach_down = factor * below if side != "upper" else None
    reach_up = (
        reach_down if above is below and side == "both" else factor * above if side != "lower" else None
    )
    lower = np.full(n, bounds[0]) if reach_down is None else forecast.score - reach_down
    upper = np.full(n, bounds[1]) if reach_up is None else np.add(forecast.score, reach_up, out=reach_up)
    if bounds != UNBOUNDED:
        np.clip(lower, *bounds, out=lower)
        np.clip(upper, *bounds, out=upper)
    infinite = np.isposinf(table)
    unbounded = (
        infinite[cells] if cells is not None and infinite.any() else np.broadcast_to(infinite.all(), n)
    )
    nothing = np.broadcast_to(False, n)
    return Intervals(lower, upper, unbounded, nothing, nothing)


def _outward(factors: Floats) -> Floats:
    """Enlarge factors by a few units in the last place.

    A human score whose nonconformity equals the factor must lie inside its interval, although
    ``(y - score) / spread`` and the way back are rounded. The sum with the score needs no more: where the
    reach is at least ``y - score``, the rounded sum is at least ``y``.
    """
    few = 4 * np.finfo(np.float64).eps
    return np.where(factors < 0, factors * (1 - few), factors * (1 + few))


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
    p-values exactly uniform under exchangeability. O((n + m) log(n + m)).

    >>> p_values([1.0, 2.0, 3.0], [2.0, 9.0])
    array([0.75, 0.25])
    """
    ordered = np.sort(np.asarray(calibration, dtype=np.float64))
    scores = np.asarray(new, dtype=np.float64)
    n = len(ordered)
    # Looked up in ascending order, neighbours in the search stay in the cache: twice as fast for long lists.
    order = np.argsort(scores)
    smaller = np.empty(len(scores), dtype=np.int64)
    smaller[order] = np.searchsorted(ordered, scores[order], side="left")
    if seed is None:
        return (n + 1 - smaller) / (n + 1)
    larger = n - np.searchsorted(ordered, scores, side="right")
    ties = n - smaller - larger + 1
    return (larger + np.random.default_rng(seed).random(len(scores)) * ties) / (n + 1)
