"""Calibration by least expected calibration error (Glushkova et al. 2021; Zerva & Martins 2024, section 3.2).

The baseline that conformal prediction is compared with: an affine map of the variance, without a promise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.split import UNBOUNDED, Bounds, Floats, Intervals, checked_human, exact
from doubtless.errors import InputError
from doubtless.forecast import Distribution, Forecast, probit

LEVELS = 100
_MOST_ROWS = 10_000


def levels(count: int = LEVELS) -> Floats:
    """The confidence levels of equation 10: evenly spaced from 0 to 1, both included."""
    return np.linspace(0, 1, count)


def expected_calibration_error(forecast: Distribution, human: ArrayLike, count: int = LEVELS) -> float:
    """Equation 10: the mean distance between a confidence level and the share it really covers.

    >>> from doubtless.forecast import Gaussian
    >>> expected_calibration_error(Gaussian([0.0], [1.0]), [0.0], count=2)
    0.5
    """
    y = checked_human(human, len(forecast))
    covered = np.searchsorted(np.sort(forecast.centrality(y)), levels(count), side="right") / len(y)
    return float(np.abs(covered - levels(count)).mean())


@dataclass(frozen=True)
class EceCalibration:
    """Choose ``a`` and ``b`` of ``sd'^2 = a sd^2 + b`` to minimise the expected calibration error.

    A forecast that is not Gaussian enters with the standard deviation that its spread at ``alpha``
    would have if it were. At most 10,000 rows, drawn with ``seed``, are used.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> fitted = EceCalibration(0.1).fit(Gaussian(np.zeros(4000), np.ones(4000)), 3 * rng.normal(size=4000))
    >>> bool(8.5 < fitted.scale + fitted.offset < 9.5)
    True
    """

    alpha: float = 0.1
    bounds: Bounds = UNBOUNDED
    seed: int = 0

    def fit(self, forecast: Forecast, human: ArrayLike) -> FittedEce:
        """Calibrate on forecasts with human scores."""
        y = checked_human(human, len(forecast))
        if not len(y):
            raise InputError("a calibration of the variance needs at least one row")
        z = probit(float(1 - exact(self.alpha) / 2))
        below, above = forecast.spread(self.alpha)
        residual = y - forecast.score
        variance = (np.where(residual < 0, below, above) / z) ** 2
        squares = residual**2
        if len(y) > _MOST_ROWS:
            rows = np.random.default_rng(self.seed).choice(len(y), _MOST_ROWS, replace=False)
            squares, variance = squares[rows], variance[rows]
        scale, offset = _least_ece(squares, variance)
        return FittedEce(self.alpha, scale, offset, len(y), self.bounds)


def _least_ece(squares: Floats, variance: Floats) -> tuple[float, float]:
    """Minimise over ``(a, b)``, by a search over the ratio ``b/a`` with a one-dimensional one inside.

    Given the ratio t, ``|r| <= c sd'`` is ``r^2 / (sd^2 + t) <= c^2 a``: one sort serves every a.
    """
    with np.errstate(divide="ignore"):
        from scipy.special import ndtri

        targets = levels()
        reach = ndtri((1 + targets) / 2) ** 2  # the squared half-width of each level, in standard deviations
    typical = float(np.median(variance))

    def best_scale(ratio: float) -> tuple[float, float]:
        v = np.sort(squares / (variance + ratio))
        middle = max(float(v[len(v) // 2]) / reach[LEVELS // 2], 1e-300)

        def error(scales: Floats) -> Floats:
            with np.errstate(invalid="ignore"):
                limits = np.where(np.isinf(reach), np.inf, np.multiply.outer(scales, reach))
            covered = np.searchsorted(v, limits.ravel(), side="right").reshape(limits.shape) / len(v)
            return np.abs(covered - targets).mean(axis=1)

        coarse = middle * np.geomspace(1 / 16, 16, 49)
        fine = coarse[int(error(coarse).argmin())] * np.geomspace(0.89, 1.12, 41)
        errors = error(fine)
        return float(errors.min()), float(fine[int(errors.argmin())])

    def search(ratios: Floats) -> float:
        return min((best_scale(ratio)[0], ratio) for ratio in ratios)[1]

    ratio = search(np.append(0.0, typical * np.geomspace(1e-3, 1e5, 25)))
    if ratio:
        ratio = search(ratio * np.geomspace(0.5, 2, 13))
    scale = best_scale(ratio)[1]
    return scale, scale * ratio


@dataclass(frozen=True)
class FittedEce:
    """The affine map ``sd'^2 = scale sd^2 + offset``."""

    alpha: float
    scale: float
    offset: float
    n: int
    bounds: Bounds = UNBOUNDED
    kind: str = field(default="ece", init=False)

    def intervals(self, forecast: Forecast, groups: Any = None) -> Intervals:
        """Return the interval of each new segment; groups, if given, make no difference."""
        z = probit(float(1 - exact(self.alpha) / 2))
        below, above = (
            np.sqrt(self.scale * side**2 + self.offset * z**2) for side in forecast.spread(self.alpha)
        )
        none = np.zeros(len(forecast), dtype=bool)
        lower, upper = forecast.score - below, forecast.score + above
        return Intervals(np.clip(lower, *self.bounds), np.clip(upper, *self.bounds), none, none, none)
