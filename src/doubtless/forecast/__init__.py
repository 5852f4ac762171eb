"""Forecasts: a score and its uncertainty for each segment.

Every estimator returns one of these families and everything after it (calibration, evaluation, decisions)
asks only for ``score`` and ``spread(alpha)``. Families that are probability distributions also have
``mean``, ``variance``, ``quantile`` and ``log_density``.
"""

from doubtless.forecast.base import FLOOR, Floats, Forecast, first_not_finite
from doubtless.forecast.distributions import Distribution, Gaussian, Normal, Samples, WarpedGaussian, probit
from doubtless.forecast.spreads import ErrorEstimate, Quantiles

__all__ = [
    "FLOOR",
    "Distribution",
    "ErrorEstimate",
    "Floats",
    "Forecast",
    "Gaussian",
    "Normal",
    "Quantiles",
    "Samples",
    "WarpedGaussian",
    "first_not_finite",
    "probit",
]
