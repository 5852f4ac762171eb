"""Forecasts: a score and its uncertainty for each segment.

Every estimator returns one of these families and everything after it (calibration, evaluation, decisions)
asks only for ``score`` and ``spread(alpha)``. Families that are probability distributions also have
``mean``, ``variance``, ``quantile`` and ``log_density``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError, UndefinedError
from doubtless.warp import Warp

Floats = np.ndarray[Any, np.dtype[np.float64]]

FLOOR = 1e-6
_LOG_2PI = float(np.log(2 * np.pi))
_ROWS_AT_ONCE = 1 << 16


def probit(p: float) -> float:
    """Quantile of the standard normal distribution: ``probit(0.95)`` is 1.645."""
    return NormalDist().inv_cdf(p)


def first_not_finite(values: Floats) -> int | None:
    """The first row that holds a number that is not finite, if there is one."""
    finite = np.isfinite(values)
    if finite.all():
        return None
    return int(finite.reshape(len(values), -1).all(axis=1).argmin())


@dataclass(frozen=True, eq=False)
class Forecast(ABC):
    """Scores of segments with their uncertainty; immutable, sliceable by rows.

    A family lists its row-wise arrays as fields and says what its score and its raw spread are.
    """

    floor: float = field(default=FLOOR, kw_only=True)

    def __post_init__(self) -> None:
        """Turn row-wise fields into read-only float arrays of one length, all finite."""
        lengths = set()
        for name in self._rowwise():
            values = np.asarray(getattr(self, name), dtype=np.float64).view()
            row = first_not_finite(values)
            if row is not None:
                raise InputError(f"{name} of a forecast is not finite in row {row + 1}")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
            lengths.add(len(values))
        if len(lengths) > 1:
            raise InputError(f"the arrays of a forecast have different lengths: {sorted(lengths)}")

    @classmethod
    def _rowwise(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.type == "Floats"]

    def __len__(self) -> int:
        return len(getattr(self, self._rowwise()[0]))

    def __getitem__(self, rows: Any) -> Self:
        """Keep rows, by a slice, a mask or row numbers."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self._rowwise()})

    @property
    @abstractmethod
    def score(self) -> Floats:
        """The point estimate of each segment."""

    @abstractmethod
    def raw_spread(self, alpha: float) -> tuple[Floats, Floats]:
        """Distances to the ends of the family's own interval at level 1 - alpha, before the floor."""

    def spread(self, alpha: float) -> tuple[Floats, Floats]:
        """Distances from the score down and up to the ends of the interval at level ``1 - alpha``.

        Both are at least ``floor``: a spread of zero claims certainty, and nothing divides by it.
        Symmetric families return the same array twice.

        >>> below, above = Gaussian([0.5], [0.1]).spread(0.1)
        >>> float(above[0].round(4))
        0.1645
        """
        below, above = self.raw_spread(alpha)
        if above is below:
            both = self._raised(below)
            return both, both
        return self._raised(below), self._raised(above)

    def _raised(self, spread: Floats) -> Floats:
        # Most forecasts never touch the floor: looking is four times as fast as raising.
        return np.maximum(spread, self.floor) if len(spread) and spread.min() < self.floor else spread

    def floored(self, alpha: float) -> int:
        """Count the rows whose spread was raised to the floor."""
        below, above = self.raw_spread(alpha)
        return int(np.count_nonzero((below < self.floor) | (above < self.floor)))

    def uncertainty(self, alpha: float) -> Floats:
        """One number a row: half the width of the family's own interval."""
        below, above = self.spread(alpha)
        return below if above is below else (below + above) / 2


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


def _refuse_negative(values: Floats, what: str) -> None:
    if len(values) and values.min() < 0:
        raise InputError(f"the {what} of a forecast is negative in row {int(values.argmin()) + 1}")
