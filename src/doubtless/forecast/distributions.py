"""Forecasts that are probability distributions: normal ones, and what a warping makes of them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.forecast.base import Floats, Forecast
from doubtless.warp import Warp

_LOG_2PI = float(np.log(2 * np.pi))
_ROWS_AT_ONCE = 1 << 16


def probit(p: float) -> float:
    """Quantile of the standard normal distribution: ``probit(0.95)`` is 1.645."""
    return NormalDist().inv_cdf(p)


class Distribution(Forecast):
    """A forecast that is a probability distribution."""

    mean: Floats
    variance: Floats

    @abstractmethod
    def quantile(self, p: float) -> Floats:
        """The value below which a share p lies."""

    @abstractmethod
    def log_density(self, y: ArrayLike) -> Floats:
        """Natural logarithm of the density at y."""

    @abstractmethod
    def z(self, y: ArrayLike) -> Floats:
        """The standard normal value that corresponds to y."""

    def centrality(self, y: ArrayLike) -> Floats:
        """The level of the smallest central interval that covers y: 0 at the median, 1 far out."""
        from scipy.special import erf

        centrality: Floats = erf(np.abs(self.z(y)) / np.sqrt(2))
        return centrality


class Normal(Distribution):
    """What normal distributions share, wherever ``mean`` and ``sd`` come from."""

    sd: Floats

    @property
    def score(self) -> Floats:
        """The mean."""
        return self.mean

    @property
    def variance(self) -> Floats:  # type: ignore[override]
        """The square of the standard deviation."""
        return self.sd**2

    def raw_spread(self, alpha: float) -> tuple[Floats, Floats]:
        """probit(1 - alpha/2) standard deviations either way."""
        both = probit(1 - alpha / 2) * self.sd
        return both, both

    def quantile(self, p: float) -> Floats:
        """The value below which a share p lies."""
        return self.mean + probit(p) * self.sd

    def z(self, y: ArrayLike) -> Floats:
        """Standardised residual; a standard deviation below the floor counts as the floor."""
        return (np.asarray(y) - self.mean) / np.maximum(self.sd, self.floor)

    def log_density(self, y: ArrayLike) -> Floats:
        """Log density at y; a standard deviation below the floor counts as the floor."""
        return -0.5 * (self.z(y) ** 2 + _LOG_2PI) - np.log(np.maximum(self.sd, self.floor))


@dataclass(frozen=True, eq=False)
class Gaussian(Normal):
    """A normal distribution a segment (heteroscedastic regression, Gaussian processes).

    Parameters
    ----------
    mean, sd
        Array-likes: mean and standard deviation of each segment.
    floor
        Smallest spread that is believed.

    Examples
    --------
    >>> forecast = Gaussian([0.5, 0.2], [0.1, 0.3])
    >>> forecast.quantile(0.5)
    array([0.5, 0.2])
    """

    mean: Floats
    sd: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_negative(self.sd, "standard deviation")


@dataclass(frozen=True, eq=False)
class Samples(Normal):
    """Several scores a segment (MC dropout, ensembles), taken as Gaussian by their first two moments.

    Parameters
    ----------
    samples
        Array-like with one row a segment and one column a pass or a member.
    floor
        Smallest spread that is believed.

    Examples
    --------
    >>> forecast = Samples([[0.1, 0.3], [0.6, 0.6]])
    >>> forecast.score
    array([0.2, 0.6])
    >>> forecast.floored(0.1)
    1
    """

    samples: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples.ndim != 2 or self.samples.shape[1] == 0:
            raise InputError("samples need one row a segment and at least one column")

    @cached_property
    def mean(self) -> Floats:  # type: ignore[override]
        """Mean of the samples."""
        return self.samples.mean(axis=1)

    @cached_property
    def sd(self) -> Floats:  # type: ignore[override]
        """Standard deviation of the samples (divided by their number, as in the papers)."""
        # Blocks of rows keep the working memory of std() small however many segments there are.
        starts = range(0, max(len(self), 1), _ROWS_AT_ONCE)
        return np.concatenate([self.samples[i : i + _ROWS_AT_ONCE].std(axis=1) for i in starts])


@dataclass(frozen=True, eq=False)
class WarpedGaussian(Distribution):
    """A distribution that a monotone warping makes Gaussian (warped Gaussian processes).

    Parameters
    ----------
    mu, sd
        Mean and standard deviation on the Gaussian scale.
    warp
        Warping from the score's scale to the Gaussian one.
    floor
        Smallest spread (on the score's scale) that is believed.

    Examples
    --------
    >>> from doubtless.warp import LogWarp
    >>> WarpedGaussian([0.0], [1.0], LogWarp()).mean.round(4)  # exp(1/2)
    array([1.6487])
    """

    mu: Floats
    sd: Floats
    warp: Warp

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_negative(self.sd, "standard deviation")

    @cached_property
    def score(self) -> Floats:
        """The median."""
        return self.warp.inverse(self.mu)

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        values = np.stack([self.warp.inverse(self.mu + self.sd * node) for node in nodes])
        weights = weights / weights.sum()
        mean = weights @ values
        return mean, weights @ (values - mean) ** 2

    @property
    def mean(self) -> Floats:  # type: ignore[override]
        """Mean by 20-point Gauss-Hermite quadrature."""
        return self._moments[0]

    @property
    def variance(self) -> Floats:  # type: ignore[override]
        """Variance by 20-point Gauss-Hermite quadrature."""
        return self._moments[1]

    def raw_spread(self, alpha: float) -> tuple[Floats, Floats]:
        """Distances from the median to the outer quantiles."""
        return self.score - self.quantile(alpha / 2), self.quantile(1 - alpha / 2) - self.score

    def quantile(self, p: float) -> Floats:
        """The value below which a share p lies."""
        return self.warp.inverse(self.mu + probit(p) * self.sd)

    def z(self, y: ArrayLike) -> Floats:
        """Standardised residual on the Gaussian scale; infinitely low outside the warping's domain."""
        warped = self.warp.forward(np.asarray(y, dtype=np.float64))
        return np.where(np.isnan(warped), -np.inf, (warped - self.mu) / self._positive_sd)

    def log_density(self, y: ArrayLike) -> Floats:
        """Log density at y, with the Jacobian of the warping."""
        y = np.asarray(y, dtype=np.float64)
        slope = self.warp.log_derivative(y)
        density = -0.5 * (self.z(y) ** 2 + _LOG_2PI) - np.log(self._positive_sd) + slope
        return np.where(np.isnan(slope), -np.inf, density)

    @property
    def _positive_sd(self) -> Floats:
        return np.maximum(self.sd, np.finfo(float).tiny)


def _refuse_negative(values: Floats, what: str) -> None:
    if len(values) and values.min() < 0:
        raise InputError(f"the {what} of a forecast is negative in row {int(values.argmin()) + 1}")
