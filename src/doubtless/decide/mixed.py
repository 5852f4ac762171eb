"""Human and metric scores combined: means of systems with intervals that hold although people saw a part.

If people score just the segments that a rule picks, what is known of these says nothing certain about the
rest, and no correction can be trusted. So segments are *drawn*, each with a known chance, higher where more
doubt is (Zrnic & Candès 2024; in survey sampling, unequal-probability sampling). Then every segment that was
drawn stands for ``1 / chance`` segments, whatever the rule was worth: a bad rule makes intervals wide, not
wrong.

The estimator is the generalised regression (GREG) one, known in prediction-powered inference as power-tuned
(Angelopoulos et al. 2023). With the metric's score f, the human score y and the chance p of each segment,

1. ``g = a + b f`` is fitted to the segments that people scored, b for all systems together and a for each,
   with weights ``(1 - p) / p``: the metric, put onto the human scale; if the metric is worth nothing, b is
   near 0;
2. a system's mean is ``mean(g) + sum over scored ((y - g) / p) / N``: what the fit misses is estimated from
   the scored segments without bias;
3. its variance is that of fixed-size sampling with unequal chances by Hájek's and Deville's approximation,
   ``sum((1 - p) (r / p - B)^2 / (1 - h)) / N^2`` with r the residuals, B the mean of ``r / p`` with weights
   ``1 - p`` and h the share that a segment has in the weights of its system's fit. Nothing is left of it
   where people saw everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from doubtless import systems
from doubtless.decide.budget import Mask
from doubtless.errors import InputError
from doubtless.forecast import Floats

EVEN = 0.5


def chances(
    doubt: ArrayLike, cost: ArrayLike, budget: float, *, even: float = EVEN, strata: ArrayLike | None = None
) -> Floats:
    """With which chance each segment should be drawn, so that the expected cost is the budget.

    Chances are proportional to the doubt and to ``1 / sqrt(cost)``, which makes the variance least if errors
    are as large as the doubt says, and at most 1.

    Parameters
    ----------
    doubt
        Expected size of the error of each score (not negative, in any unit).
    cost
        What it costs to score each segment.
    budget
        Expected sum of the costs of the segments that are drawn.
    even
        Share of the mean doubt that all segments get in equal parts: what protects against a doubt that is
        wrong. With 1 all chances are equal (for equal costs).
    strata
        Groups of segments, each with a share of the budget as large as its share of all costs.

    Examples
    --------
    >>> chances([1.0, 3.0, 20.0, 0.0], cost=[1, 1, 1, 1], budget=2, even=0.2).round(3)
    array([0.294, 0.529, 1.   , 0.176])
    """
    size, price = np.asarray(doubt, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    if size.shape != price.shape or size.ndim != 1:
        raise InputError(f"{len(size)} segments have {price.size} costs")
    if not (np.isfinite(size).all() and (size >= 0).all()):
        raise InputError("chances need doubts that are finite and not negative")
    if not 0 < even <= 1:
        raise InputError(f"the even part lies above 0 and is at most 1, found {even:g}")
    if strata is None:
        return _chances(size, price, budget, even)
    _, group = np.unique(np.asarray(strata), return_inverse=True)
    found, total = np.empty(len(size)), price.sum()
    for number in range(group.max() + 1):
        own = group == number
        found[own] = _chances(size[own], price[own], budget * price[own].sum() / total, even)
    return found


def _chances(size: Floats, price: Floats, budget: float, even: float) -> Floats:
    if budget >= price.sum():
        return np.ones(len(size))
    mean = size.mean()
    mixed = np.ones(len(size)) if mean == 0 else (1 - even) * size / mean + even
    wish = mixed / np.sqrt(price)
    order = np.argsort(-wish)
    # If the k largest are certain, the others share what is left in proportion to their wishes.
    certain = np.concatenate([[0.0], np.cumsum(price[order])[:-1]])
    shared = np.cumsum((wish * price)[order][::-1])[::-1]
    factor = (budget - certain) / shared
    k = int((factor * wish[order] <= 1).argmax())
    return np.minimum(np.maximum(factor[k], 0.0) * wish, 1.0)


def draw(chance: ArrayLike, strata: ArrayLike | None = None, *, seed: int | np.random.Generator = 0) -> Mask:
    """Draw segments with given chances: of each stratum as many as its chances add up to, rounded up or down.

    The segments of a stratum are put into random order and drawn systematically (Hartley & Rao 1962).

    >>> int(draw([0.5] * 10 + [1.0], seed=1).sum()), bool(draw([0.5] * 10 + [1.0], seed=1)[-1])
    (6, True)
    """
    p = np.asarray(chance, dtype=np.float64)
    if ((p < 0) | (p > 1) | np.isnan(p)).any():
        raise InputError("a chance lies between 0 and 1")
    rng = np.random.default_rng(seed)
    group = np.zeros(len(p), dtype=np.int64)
    if strata is not None:
        _, group = np.unique(np.asarray(strata), return_inverse=True)
    order = np.lexsort((rng.random(len(p)), group))
    sums = np.cumsum(p[order])
    # Each stratum starts afresh, at a random place between 0 and 1.
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    before = np.concatenate([[0.0], sums])[starts]
    sizes = np.diff(np.append(starts, len(p)))
    shift = rng.random(len(starts)) - before
    to = sums + np.repeat(shift, sizes)
    chosen = np.empty(len(p), dtype=bool)
    # Rounding must not lose a certain one.
    chosen[order] = (np.floor(to) > np.floor(to - p[order])) | (p[order] == 1)
    return chosen


@dataclass(frozen=True, eq=False)
class Mixed:
    """Means of systems from human and metric scores.

    Parameters
    ----------
    names, found
        The systems in sorted order, and their means, intervals, pairs and ranks: see
        :class:`doubtless.systems.Comparison`. ``found.n`` counts all segments of a system.
    scored
        How many segments of each system people scored.
    error
        Standard error of each mean.
    slope
        By how much a point of the metric counts: 1 if it is on the human scale, near 0 if it is worth
        nothing.
    corrected
        A score for every segment: the human one where it is known, else the metric's, put onto the human
        scale.
    """

    names: list[str]
    found: systems.Comparison
    scored: systems.Integers
    error: Floats
    slope: float
    corrected: Floats


def estimate(
    system: Any,
    score: ArrayLike,
    human: ArrayLike,
    chance: ArrayLike,
    *,
    alpha: float = 0.05,
    higher: bool = True,
    beyond: bool = False,
) -> Mixed:
    """Estimate the mean human score of each system from the segments that were drawn for people.

    Parameters
    ----------
    system
        The system of each row, all of one language pair.
    score
        The metric's score of each row.
    human
        The human score of each row that was drawn, NaN elsewhere.
    chance
        The chance with which each row was drawn.
    alpha
        One minus the level of intervals and tests.
    higher
        Whether higher scores are better.
    beyond
        Whether intervals speak of all segments that might have been in the test set, and not only of what
        people would have said about these. Tests between systems then ignore that systems translate the same
        segments, which makes them careful.

    Returns
    -------
    Mixed

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score = rng.normal(size=400)
    >>> truth = 0.5 * score + 1 + rng.normal(0, 0.3, 400)
    >>> p = np.full(400, 0.25)
    >>> human = np.where(draw(p, seed=1), truth, np.nan)
    >>> made = estimate(["a"] * 400, score, human, p)
    >>> bool(made.found.lower[0] < truth.mean() < made.found.upper[0]), round(made.slope, 1)
    (True, 0.5)
    """
    f, y, p = (np.asarray(values, dtype=np.float64) for values in (score, human, chance))
    known = ~np.isnan(y)
    if (known & ~(p > 0)).any() or ((p > 1) | np.isnan(p)).any():
        raise InputError(
            "a human score belongs to a segment that could not be drawn: its chance is not above 0"
        )
    if not (p > 0).all():
        raise InputError("some segments could not be drawn (their chance is 0): nothing is known about them")
    if (~known & (p == 1)).any():
        raise InputError("a segment was certain to be drawn and has no human score")
    expected, slack = p.sum(), 1 + 6 * np.sqrt((p * (1 - p)).sum())
    if abs(known.sum() - expected) > slack:
        raise InputError(
            f"{known.sum()} segments have a human score, but the chances let expect {expected:.0f}:"
            " leave out human scores of segments that were not drawn"
        )
    names, group, n = _systems(system)
    weight = np.where(known, (1 - p) / p, 0.0)
    uncertain = np.bincount(group, known & (p < 1), minlength=len(names))
    if ((uncertain < 2) & (np.bincount(group, p < 1) > 0)).any():
        raise InputError("a system has fewer than two drawn segments with human scores")
    fit, slope = _fitted(f, np.where(known, y, 0.0), weight, group, len(names))
    residual = np.where(known, y - fit, 0.0) / p
    mean = (np.bincount(group, fit) + np.bincount(group, residual)) / n
    variance, freedom = _variance(residual, p, known, weight, group, n)
    if beyond:
        variance = variance + _spread(y, p, known, group, n, mean) / n
        freedom = np.maximum(freedom, 1)
    found = _compared(mean, variance, freedom, n, alpha, higher)
    scored = np.bincount(group, known, minlength=len(names)).astype(np.int64)
    return Mixed(names, found, scored, np.sqrt(variance), slope, np.where(known, y, fit))


def _systems(system: Any) -> tuple[list[str], np.ndarray, Floats]:
    names, group = np.unique(np.asarray(system), return_inverse=True)
    return [str(name) for name in names], group, np.bincount(group).astype(np.float64)


def _fitted(f: Floats, y: Floats, weight: Floats, group: np.ndarray, k: int) -> tuple[Floats, float]:
    """The metric put onto the human scale: one slope, an offset a system."""
    total = np.bincount(group, weight, minlength=k)
    divisor = np.where(total > 0, total, 1.0)
    f_mean = np.bincount(group, weight * f, minlength=k) / divisor
    y_mean = np.bincount(group, weight * y, minlength=k) / divisor
    centred = f - f_mean[group]
    scale = float((weight * centred**2).sum())
    slope = float((weight * centred * (y - y_mean[group])).sum()) / scale if scale > 0 else 0.0
    return y_mean[group] + slope * centred, slope


def _variance(
    residual: Floats, p: Floats, known: Mask, weight: Floats, group: np.ndarray, n: Floats
) -> tuple[Floats, Floats]:
    """Variance of each mean under the drawing, and the degrees of freedom of its estimate."""

    def sums(values: np.ndarray) -> Floats:
        return np.bincount(group, values, minlength=len(n)).astype(np.float64)

    def divided(values: Floats, by: Floats) -> Floats:
        return values / np.where(by > 0, by, 1.0)

    share = np.where(known, 1 - p, 0.0)
    centre = divided(sums(share * residual), sums(share))
    # A heavy segment draws the fit towards itself, and its residual is too small.
    leverage = divided(weight, sums(weight)[group])
    own = share * (residual - centre[group]) ** 2 / np.maximum(1 - leverage, 1e-9)
    # Few segments with small chances may decide the estimate: these are what counts (Kish).
    part = np.where(known, share / p**2, 0.0)
    effective = divided(sums(part) ** 2, sums(part**2))
    return sums(own) / n**2, np.maximum(effective - 1, 1.0)


def _spread(y: Floats, p: Floats, known: Mask, group: np.ndarray, n: Floats, mean: Floats) -> Floats:
    """The variance of human scores within each system."""
    off = np.where(known, y - mean[group], 0.0)
    weights = np.where(known, 1 / p, 0.0)
    return np.bincount(group, weights * off**2, minlength=len(n)) / np.bincount(group, weights)


def _compared(
    mean: Floats, variance: Floats, freedom: Floats, n: Floats, alpha: float, higher: bool
) -> systems.Comparison:
    """Means with intervals, and what they say about pairs of systems: drawn independently of each other."""
    reach = stdtrit(freedom, 1 - alpha / 2) * np.sqrt(variance)
    difference = mean[:, None] - mean[None, :]
    both = variance[:, None] + variance[None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        # Welch and Satterthwaite.
        pair_freedom = both**2 / ((variance**2 / freedom)[:, None] + (variance**2 / freedom)[None, :])
        t = np.where(both > 0, difference / np.sqrt(both), np.sign(difference) * np.inf)
    t = np.nan_to_num(t, nan=0.0, posinf=np.inf, neginf=-np.inf)
    above = stdtr(np.nan_to_num(pair_freedom, nan=1.0, posinf=1e9), t)
    first, second = np.triu_indices(len(mean), 1)
    p_value = np.ones_like(both)
    p_value[first, second] = systems.holm(2 * np.minimum(above, 1 - above)[first, second])
    p_value[second, first] = p_value[first, second]
    chance = above if higher else 1 - above
    better = (p_value < alpha) & (chance > 0.5)
    order = np.argsort(-mean if higher else mean, kind="stable")
    return systems.Comparison(
        n=n.astype(np.int64),
        missing=np.zeros(len(n), dtype=np.int64),
        mean=mean,
        lower=mean - reach,
        upper=mean + reach,
        difference=difference,
        chance=chance,
        p_value=p_value,
        better=better,
        best=1 + better.sum(axis=0),
        worst=len(mean) - better.sum(axis=1),
        cluster=systems.clusters(better, order),
        order=order,
    )
