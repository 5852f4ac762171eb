"""The number with the least expected loss, for any forecast and any loss (Christoffersen & Diebold 1997)."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.conformal.split import UNBOUNDED, Bounds
from doubtless.decide.losses import Loss
from doubtless.decide.outlook import Assumption, Outlook, least, outlooks
from doubtless.errors import InputError, UndefinedError
from doubtless.forecast import Floats, Forecast, Normal, Quantiles, Samples

AnyLoss = Loss | Callable[[Floats, Floats], ArrayLike]

METHODS = ("exact", "paper")
ASSUMPTIONS = ("normal", "samples")
# Beyond, the level that al and aq ask for cannot be told from 0 or 1, and nothing is known that far out.
_LARGEST_WEIGHT = 1e12
_MOST_STEPS = 100
_ROUNDS = 11


def decide(
    forecast: Forecast,
    loss: AnyLoss,
    *,
    distribution: PredictiveDistribution | None = None,
    groups: Any = None,
    assume: Assumption | None = None,
    bounds: Bounds = UNBOUNDED,
    method: str = "exact",
) -> Floats:
    """Choose the number with the least expected loss for each segment.

    Parameters
    ----------
    forecast
        Any family.
    loss
        A :class:`~doubtless.decide.losses.Loss`, or a function ``loss(prediction, truth)`` of two arrays that
        returns the array of losses.
    distribution, groups
        A conformal predictive distribution to use instead of the forecast's own, and the groups it asks for.
        Its quantiles err on the careful side: the truth lies beyond one with at most the chance intended.
    assume
        None: what a family does not say is refused; quantiles between known ones are read off a straight
        line on the normal scale. ``normal``: that line is also prolonged beyond them, and an expected
        absolute error is taken as that of a normal distribution. ``samples``: samples are the distribution
        itself, instead of giving it a mean and a variance.
    bounds
        Range of the truth; what a forecast holds possible beyond an end is moved onto it.
    method
        ``exact``, or ``paper`` for the formula of Beck et al. (2016), which under ``linex`` is best only for
        normal distributions: mean plus or minus ``w variance / 2``.

    Returns
    -------
    One number a segment.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> times = Gaussian([10.0, 10.0], [1.0, 4.0])
    >>> decide(times, Loss("al", 3)).round(2)  # the upper quartile
    array([10.67, 12.7 ])
    >>> decide(times, Loss("linex", 0.5, "over"))  # mean - w variance / 2
    array([9.75, 6.  ])
    >>> decide(times, lambda prediction, truth: (prediction - truth) ** 2).round(3)
    array([10., 10.])
    """
    _check(loss, assume, bounds, method)
    own = distribution is None and assume != "samples"
    if isinstance(loss, Loss) and own:
        if isinstance(forecast, Quantiles) and loss.kind == "al" and assume is None:
            known = _known_quantile(forecast, loss)
            if known is not None:
                return np.clip(known, *bounds)
            assume = "normal"  # between known levels: nothing is prolonged
        if isinstance(forecast, Normal) and loss.kind == "linex" and bounds == UNBOUNDED:
            with np.errstate(over="ignore"):
                decision = forecast.mean + loss.tilt * forecast.variance / 2
            _refuse_infinite(decision, None, calibrated=False)
            return decision
    decision = np.full(len(forecast), np.nan)
    # What overflows is refused below, in words.
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, outlook in outlooks(forecast, assume, bounds, distribution, groups):
            decision[rows] = np.clip(_best(outlook, loss, method), *bounds)
    _refuse_infinite(decision, loss, calibrated=distribution is not None)
    return decision


def best_shift(score: ArrayLike, truth: ArrayLike, loss: Loss) -> float:
    """The constant that, added to all scores, would have cost least: known only afterwards.

    >>> round(best_shift([1.0, 1.0, 1.0], [1.5, 2.0, 4.0], Loss("al", 1)), 2)
    1.0
    """
    residuals = np.asarray(truth, dtype=np.float64) - np.asarray(score, dtype=np.float64)
    return float(decide(Samples(residuals[None, :]), loss, assume="samples")[0])


def _check(loss: AnyLoss, assume: str | None, bounds: Bounds, method: str) -> None:
    if method not in METHODS:
        raise InputError(f"there is no method '{method}', expected {' or '.join(METHODS)}")
    if method == "paper" and not (isinstance(loss, Loss) and loss.kind != "aq"):
        raise InputError("the paper has estimators for al and linex only")
    if isinstance(loss, Loss):
        smallest = 0.0 if loss.kind == "linex" else 1 / _LARGEST_WEIGHT
        if not smallest <= loss.w <= _LARGEST_WEIGHT:
            raise InputError(
                f"weight {loss.w:g} is too {'small' if loss.w < 1 else 'large'}: nothing is known so far out"
                f" (at most {_LARGEST_WEIGHT:g}, for al and aq at least {1 / _LARGEST_WEIGHT:g})"
            )
    if assume is not None and assume not in ASSUMPTIONS:
        raise InputError(f"there is no assumption '{assume}', expected {' or '.join(ASSUMPTIONS)}")
    if not bounds[0] < bounds[1]:
        raise InputError(
            f"a range goes from a lower to a higher number, found {bounds[0]:g} to {bounds[1]:g}"
        )


def _known_quantile(forecast: Quantiles, loss: Loss) -> Floats | None:
    """The quantile that is asked for, if it is given; None if it lies between given ones."""
    asked = float(loss.level)
    for level, values in zip(forecast.levels, forecast.values.T, strict=True):
        if isclose(level, asked, abs_tol=1e-9):  # levels are often computed, as (1 - 0.95) / 2
            return values
    if not forecast.levels[0] < asked < forecast.levels[-1]:
        raise UndefinedError(
            f"weight {loss.w:g}: quantile {asked:.4g} lies outside the known levels {forecast.levels[0]:g}"
            f" to {forecast.levels[-1]:g} (assume a normal shape to go further)"
        )
    return None


def _best(outlook: Outlook, loss: AnyLoss, method: str) -> Floats:
    if not isinstance(loss, Loss):
        return _sought(outlook, loss)
    if loss.kind == "al":
        return outlook.quantile(loss.level)
    if loss.kind == "aq":
        return _expectile(outlook, float(loss.level))
    if method == "exact":
        return outlook.exponential_mean(loss.tilt)
    values, weights = outlook.values()
    mean = (weights * values).sum(axis=1)
    return mean + loss.tilt / 2 * (weights * (values - mean[:, None]) ** 2).sum(axis=1)


def _expectile(outlook: Outlook, level: float) -> Floats:
    """Solve ``level E[(Y - t)+] = (1 - level) E[(t - Y)+]`` for t.

    It says that t is a mean with other weights on its two sides. Taking that mean again and again is Newton's
    method, here on a convex or concave function: after the first step it comes nearer from one side only.
    """
    values, weights = outlook.values()
    t = (weights * values).sum(axis=1)
    spread = (weights * np.abs(values - t[:, None])).sum(axis=1)
    for _ in range(_MOST_STEPS):
        values, weights = outlook.values(outlook.place(t))
        sided = weights * np.where(values > t[:, None], level, 1 - level)
        new = (sided * values).sum(axis=1) / sided.sum(axis=1)
        arrived = np.abs(new - t) <= 1e-12 * spread + 1e-14 * np.abs(t)
        t = new
        if arrived.all():
            break
    return t


def _sought(outlook: Outlook, loss: Callable[[Floats, Floats], ArrayLike]) -> Floats:
    """Search for the least expected loss, without knowing anything about the loss."""

    def expected(places: Floats) -> Floats:
        return np.stack([_expected(outlook, loss, place) for place in places.T], axis=1)

    start = outlook.start()
    place = least(expected, start, _ROUNDS)
    if not np.isfinite(expected(place[:, None])).all():
        raise InputError("the expected loss is infinite whatever is decided")
    # Where the ends of the search are bounds of the truth, the truth stands still and nothing lies beyond.
    moves = np.diff(outlook.truth(start[:, [0, 1, -2, -1]])) > 0
    lowest = place < start[:, :2].mean(axis=1)
    highest = place > start[:, -2:].mean(axis=1)
    if ((lowest & moves[:, 0]) | (highest & moves[:, 2])).any():
        raise InputError("the expected loss keeps falling beyond all that the forecast holds possible")
    return outlook.truth(place[:, None])[:, 0]


def _expected(outlook: Outlook, loss: Callable[[Floats, Floats], ArrayLike], place: Floats) -> Floats:
    values, weights = outlook.values(place)
    prediction = np.broadcast_to(outlook.truth(place[:, None]), values.shape)
    with np.errstate(over="ignore"):
        cost = np.asarray(loss(prediction, values), dtype=np.float64)
    if cost.shape != values.shape:
        raise InputError(f"a loss returns one number a pair, expected {values.shape}, found {cost.shape}")
    if np.isnan(cost).any():
        row, column = np.argwhere(np.isnan(cost))[0]
        pair = f"{prediction[row, column]:g} where the truth is {values[row, column]:g}"
        raise InputError(f"the loss of the prediction {pair} is not a number")
    # An infinite loss (an exponential far out) makes a place the worst, unless it has no weight.
    return (weights * np.where(weights > 0, cost, 0.0)).sum(axis=1)


def _refuse_infinite(decision: Floats, loss: AnyLoss | None, *, calibrated: bool) -> None:
    """Say why a decision is not a number; without a loss, it is one that is known to exist."""
    finite = np.isfinite(decision)
    if finite.all():
        return
    row = int(finite.argmin())
    kind = loss.kind if isinstance(loss, Loss) else ""
    if calibrated and np.isnan(decision[row]):
        raise UndefinedError(f"row {row + 1} belongs to a group without calibration rows")
    if calibrated and isinstance(loss, Loss) and kind == "al":
        raise UndefinedError(
            f"the quantile {float(loss.level):.4g} of row {row + 1} is unbounded: too few calibration rows"
            f" for weight {loss.w:g} (declare the range of the truth, or take a smaller weight)"
        )
    if kind == "linex" and np.isinf(decision[row]):
        raise UndefinedError(
            f"the expected linex loss of row {row + 1} is infinite whatever is decided: the forecast's tail"
            " is too heavy for an exponential (declare the range of the truth, or choose al or aq)"
        )
    raise InputError(f"the decision of row {row + 1} is too large for a number: its forecast is too wide")
