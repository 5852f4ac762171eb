"""Weighted conformal prediction under covariate shift (Tibshirani et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.split import (
    UNBOUNDED,
    Bounds,
    Floats,
    Intervals,
    Side,
    SplitConformal,
    exact,
    nonconformity,
    widen,
)
from doubtless.errors import InputError
from doubtless.forecast import Forecast

# Sums of weights that are equal in exact arithmetic may differ in the last places.
_SLACK = 1e-12


@dataclass(frozen=True)
class WeightedConformal:
    """Calibrate when new segments are drawn from other inputs than the calibration rows.

    Each row comes with its likelihood ratio: how much more often such an input occurs among new segments
    than among calibration rows (up to one common factor). With equal weights this is
    :class:`~doubtless.conformal.split.SplitConformal`.

    Parameters
    ----------
    alpha, side, bounds
        As in :class:`~doubtless.conformal.split.SplitConformal`.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> forecast = Gaussian(np.zeros(3), np.ones(3))
    >>> fitted = WeightedConformal(alpha=0.5).fit(forecast, [1.0, 2.0, 3.0], weights=[0.1, 0.1, 5.0])
    >>> fitted.intervals(forecast[:1], weights=[1.0]).upper.round(6)
    array([3.])
    """

    alpha: float = 0.1
    side: Side = "both"
    bounds: Bounds = UNBOUNDED

    def __post_init__(self) -> None:
        SplitConformal(self.alpha, self.side, self.bounds)

    def fit(self, forecast: Forecast, human: ArrayLike, weights: ArrayLike) -> FittedWeighted:
        """Calibrate on forecasts with human scores and the likelihood ratio of each row."""
        scores = nonconformity(forecast, human, self.alpha, self.side)
        ratio = _checked(weights, len(scores))
        if not ratio.any():
            raise InputError("the weights of the calibration rows are all zero")
        order = np.argsort(scores, kind="stable")
        return FittedWeighted(self.alpha, scores[order], np.cumsum(ratio[order]), self.side, self.bounds)


@dataclass(frozen=True, eq=False)
class FittedWeighted:
    """Calibration scores in ascending order with the running sum of their weights."""

    alpha: float
    scores: Floats
    mass: Floats
    side: Side = "both"
    bounds: Bounds = UNBOUNDED
    kind: str = field(default="weighted", init=False)

    @property
    def n(self) -> int:
        """Number of calibration rows."""
        return len(self.scores)

    def intervals(self, forecast: Forecast, weights: Any) -> Intervals:
        """Return the interval of each new segment, given its likelihood ratio.

        The factor is the smallest score at which the calibration rows carry a share 1 - alpha of all
        weight, the new segment's own included; it is infinite where they cannot.
        """
        own = _checked(weights, len(forecast))
        total = self.mass[-1] if self.n else 0.0
        needed = float(1 - exact(self.alpha)) * (total + own)
        at = np.searchsorted(self.mass, needed * (1 - _SLACK), side="left")
        factors = np.append(self.scores, np.inf)
        return widen(forecast, factors, self.alpha, self.side, self.bounds, cells=at)


def _checked(weights: ArrayLike, n: int) -> Floats:
    ratio = np.asarray(weights, dtype=np.float64)
    if ratio.shape != (n,):
        raise InputError(f"{ratio.size} weights for {n} forecasts")
    if not (np.isfinite(ratio).all() and (ratio >= 0).all()):
        raise InputError("a weight is negative or not finite")
    return ratio
