"""What a forecast holds possible: expectations, quantiles and exponential means, a row at a time.

There are two kinds. A :class:`Curve` is the truth as an increasing function of a standard normal variable:
every family of distributions here is one, and so are quantiles with normal tails. :class:`Atoms` are equally
likely values: samples, or the residuals of a calibration. Both are asked the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, inf
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.conformal.split import Bounds
from doubtless.errors import InputError, UndefinedError
from doubtless.forecast import (
    ErrorEstimate,
    Floats,
    Forecast,
    Gaussian,
    Normal,
    Quantiles,
    Samples,
    WarpedGaussian,
    probit,
)

Assumption = Literal["normal", "samples"]
Weighted = tuple[Floats, Floats]

# Quadrature on the normal scale: twelve Gauss-Legendre nodes in panels of length two, ten either way.
_PANELS = np.arange(-10.0, 11.0, 2.0)
_NODES, _WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(12))
_NODES = _NODES + 0.5  # from 0 to 1
_LOG_ROOT_2PI = float(np.log(2 * np.pi) / 2)
# Where exp(cY) may be largest: any place on the normal scale, near or very far.
_FAR = 1e8
_OUTWARD = np.concatenate([np.arange(11.0), np.geomspace(12, _FAR, 40)])
_PLACES = np.concatenate([-_OUTWARD[:0:-1], _OUTWARD])
_NUMBERS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Curve:
    """The truth of each row as an increasing function of a standard normal variable z.

    A *place* is a z. Integrals are split where the function bends and, if asked, at a place: losses have a
    kink where prediction and truth meet.
    """

    rows: int
    truth: Callable[[Floats], Floats]
    bends: Floats

    def start(self) -> Floats:
        """Places among which to look for a minimum first, for each row."""
        return np.broadcast_to(np.linspace(-8, 8, 33), (self.rows, 33))

    def place(self, truth: Floats) -> Floats:
        """The place of a truth, by bisection: near enough for a cut, whose error counts by its square."""
        low, high = np.full(self.rows, _PANELS[0]), np.full(self.rows, _PANELS[-1])
        for _ in range(24):
            middle = (low + high) / 2
            above = self.truth(middle[:, None])[:, 0] > truth
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return low

    def quantile(self, level: Fraction) -> Floats:
        """The value below which the share ``level`` lies."""
        return self.truth(np.full((self.rows, 1), probit(float(level))))[:, 0]

    def values(self, place: Floats | None = None) -> Weighted:
        """Values and their weights: an expectation is their weighted sum."""
        z, length = self._nodes(np.zeros(self.rows), place)
        values, weights = self.truth(z), length * np.exp(-(z**2) / 2 - _LOG_ROOT_2PI)
        share = weights * np.abs(values)
        outer = share[:, : len(_NODES)].sum(axis=1) + share[:, -len(_NODES) :].sum(axis=1)
        if (outer > 1e-9 * share.sum(axis=1)).any():
            raise UndefinedError(
                "the forecast's tail is too heavy: its mean lies ten standard deviations out"
            )
        return values, weights

    def _nodes(self, centre: Floats, place: Floats | None = None) -> Weighted:
        panels = centre[:, None] + _PANELS
        cuts = self.bends if place is None else np.column_stack([self.bends, place])
        ends = np.sort(np.hstack([panels, np.clip(cuts, panels[:, :1], panels[:, -1:])]), axis=1)
        length = np.diff(ends)[:, :, None]
        z = ends[:, :-1, None] + length * _NODES
        return z.reshape(self.rows, -1), (length * _WEIGHTS).reshape(self.rows, -1)

    def exponential_mean(self, c: float) -> Floats:
        """``log E[exp(c Y)] / c``; infinite where the expectation is.

        The expectation is that of ``exp(c Y(z) - z^2/2)``. It is infinite where ``c Y(z)`` keeps pace with
        ``z^2/2`` however far z goes: never for a normal distribution, always for a log-normal one if c > 0.
        """
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            end = np.full((self.rows, 1), _FAR if c > 0 else -_FAR)
            diverges = 2 * c * self.truth(end)[:, 0] >= _FAR**2

            def depth(z: Floats) -> Floats:
                return z**2 / 2 - c * self.truth(z)

            # Where the exponent is largest may be far from the middle, if c and the spread are large.
            peak = least(depth, np.broadcast_to(_PLACES, (self.rows, len(_PLACES))), rounds=6)
            z, length = self._nodes(peak)
            middle = self.truth(np.zeros((self.rows, 1)))
            x = c * (self.truth(z) - middle)
            mean = middle[:, 0] + log_mean_exp(x, np.log(length) - z**2 / 2 - _LOG_ROOT_2PI) / c
        return np.where(diverges, np.sign(c) * inf, mean)


@dataclass(frozen=True, eq=False)
class Atoms:
    """Equally likely values of each row, in increasing order. A place is a value.

    With ``open_ended``, as in conformal prediction, one more value is possible of which nothing is known.
    """

    sorted: Floats
    open_ended: bool = False

    def start(self) -> Floats:
        """Places among which to look for a minimum first: beyond the values too."""
        low, high = self.sorted[:, :1], self.sorted[:, -1:]
        return low + (high - low) * np.linspace(-1, 2, 97)

    def truth(self, place: Floats) -> Floats:
        """A place is a value."""
        return place

    def place(self, truth: Floats) -> Floats:
        """A place is a value."""
        return truth

    def quantile(self, level: Fraction) -> Floats:
        """The value below which the share ``level`` lies, the middle where there are several.

        Where one more value is possible, it is taken to lie on the far side of the quantile, so that the
        share is at least what was asked for; infinite if there are too few values for that.
        """
        n = self.sorted.shape[1]
        if not self.open_ended:
            first, last = ceil(level * n), floor(level * n) + 1
            return (self.sorted[:, first - 1] + self.sorted[:, last - 1]) / 2
        first, last = floor(level * (n + 1)), ceil(level * (n + 1))
        if 2 * level == 1:
            return (self.sorted[:, first - 1] + self.sorted[:, last - 1]) / 2
        if 2 * level > 1:
            return self.sorted[:, last - 1] if last <= n else np.full(len(self.sorted), inf)
        return self.sorted[:, first - 1] if first >= 1 else np.full(len(self.sorted), -inf)

    def values(self, place: Floats | None = None) -> Weighted:
        """Values and their weights: an expectation is their weighted sum."""
        return self.sorted, np.full_like(self.sorted, 1 / self.sorted.shape[1])

    def exponential_mean(self, c: float) -> Floats:
        """``log E[exp(c Y)] / c``."""
        middle = self.sorted.mean(axis=1)
        x = c * (self.sorted - middle[:, None])
        return middle + log_mean_exp(x, np.full(x.shape, -np.log(x.shape[1]))) / c


Outlook = Curve | Atoms


def log_mean_exp(x: Floats, log_weights: Floats) -> Floats:
    """``log sum(weight exp(x))`` of each row, without overflow, and without cancellation if all x are small.

    >>> log_mean_exp(np.array([[1e-9, -1e-9, 3e-9]]), np.full((1, 3), -np.log(3))).round(14)
    array([1.e-09])
    """
    near = np.abs(x).max(axis=1) < 1
    small = np.log1p((np.exp(log_weights[near]) * np.expm1(x[near])).sum(axis=1))
    result = np.empty(len(x))
    result[near] = small
    result[~near] = logsumexp(x[~near] + log_weights[~near], axis=1)
    return result


def least(function: Callable[[Floats], Floats], grid: Floats, rounds: int) -> Floats:
    """Where a function is least in each row: on a grid, then on ever finer ones around the best place."""
    row = np.arange(len(grid))
    for _ in range(rounds):
        best = function(grid).argmin(axis=1)
        low, high = grid[row, np.maximum(best - 1, 0)], grid[row, np.minimum(best + 1, grid.shape[1] - 1)]
        grid = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 9)
    return grid[:, grid.shape[1] // 2]


def outlooks(
    forecast: Forecast,
    assume: Assumption | None,
    bounds: Bounds,
    distribution: PredictiveDistribution | None = None,
    groups: Any = None,
) -> Iterator[tuple[Any, Outlook]]:
    """What a forecast holds possible, in blocks of rows that fit into memory."""
    if distribution is not None:
        yield from _conformal(forecast, bounds, distribution, groups)
    elif assume == "samples":
        if not isinstance(forecast, Samples):
            raise InputError("only samples can be taken as the distribution itself")
        for rows in _blocks(np.arange(len(forecast)), forecast.samples.shape[1]):
            yield rows, Atoms(np.clip(np.sort(forecast.samples[rows], axis=1), *bounds))
    else:
        make = _curve_of(forecast, assume)
        for rows in _blocks(np.arange(len(forecast)), len(_PANELS) * len(_NODES)):
            yield rows, _cut(make(rows), bounds)


def _blocks(rows: np.ndarray, width: int) -> Iterator[np.ndarray]:
    size = max(1, _NUMBERS_AT_ONCE // max(width, 1))
    return (rows[i : i + size] for i in range(0, len(rows), size))


def _conformal(
    forecast: Forecast, bounds: Bounds, distribution: PredictiveDistribution, groups: Any
) -> Iterator[tuple[Any, Outlook]]:
    below, above = forecast.spread(distribution.alpha)
    for chosen, part in distribution._parts_of(groups, len(forecast)):
        rows_of_part = np.arange(len(forecast))[chosen] if len(part) else np.arange(0)
        for rows in _blocks(rows_of_part, len(part)):
            reach = np.where(part < 0, below[rows, None], above[rows, None])
            values = forecast.score[rows, None] + part * reach
            yield rows, Atoms(np.clip(values, *bounds), open_ended=True)


def _curve_of(forecast: Forecast, assume: Assumption | None) -> Callable[[np.ndarray], Curve]:
    """How to make the curve of some rows."""
    if isinstance(forecast, Quantiles):
        return _with_normal_tails(forecast) if assume else _refused("quantiles do not tell their tails")
    if isinstance(forecast, ErrorEstimate):
        if not assume:
            _refused("an estimated error is not a distribution")
        # The mean absolute value of a normal variable is sqrt(2/pi) of its standard deviation.
        forecast = Gaussian(forecast.score, forecast.spread(0.5)[0] * np.sqrt(np.pi / 2))
    if not isinstance(forecast, Normal | WarpedGaussian):
        raise InputError(f"a forecast of the family {type(forecast).__name__} has no known distribution")
    mu = forecast.mu if isinstance(forecast, WarpedGaussian) else forecast.mean
    onto = forecast.warp.inverse if isinstance(forecast, WarpedGaussian) else np.positive
    sd = forecast.sd

    def curve(rows: np.ndarray) -> Curve:
        middle, unit = mu[rows, None], sd[rows, None]
        return Curve(len(rows), lambda z: onto(middle + unit * z), np.empty((len(rows), 0)))

    return curve


def _refused(why: str) -> Any:
    raise UndefinedError(
        f"{why}, on which this decision rests (assume a normal shape, or use a calibration's distribution)"
    )


def _with_normal_tails(forecast: Quantiles) -> Callable[[np.ndarray], Curve]:
    """Known quantiles, joined by straight lines on the normal scale, the outer ones prolonged."""
    if len(forecast.levels) < 2:
        raise UndefinedError("one quantile does not say how uncertain a score is: two are needed")
    at = np.array([probit(level) for level in forecast.levels])

    def curve(rows: np.ndarray) -> Curve:
        known = forecast.values[rows]
        slope = np.diff(known) / np.diff(at)
        turn = np.diff(slope)

        def truth(z: Floats) -> Floats:
            y = known[:, :1] + slope[:, :1] * (z - at[0])
            for k, bend in enumerate(at[1:-1]):
                y += turn[:, k : k + 1] * np.maximum(z - bend, 0)
            return y

        return Curve(len(rows), truth, np.broadcast_to(at[1:-1], (len(rows), len(at) - 2)))

    return curve


def _cut(curve: Curve, bounds: Bounds) -> Curve:
    """Put what lies beyond the bounds onto them."""
    ends = [np.full(curve.rows, end) for end in bounds if np.isfinite(end)]
    if not ends:
        return curve
    bends = np.column_stack([curve.bends, *(curve.place(end) for end in ends)])
    return Curve(curve.rows, lambda z: np.clip(curve.truth(z), *bounds), bends)
