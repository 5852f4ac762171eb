"""Bootstrap intervals: how far would a figure move with other segments, or with other systems?

Figures of segments are drawn again over items (all systems of an item together), figures of systems over
systems. A draw is a vector of how often each unit was taken, so that most figures need no second look at the
data: sums over items become products with the weights.
"""

from __future__ import annotations

import numpy as np

from doubtless.metaeval.grid import Grid
from doubtless.metaeval.pairs import Floats, grouped
from doubtless.metaeval.soft import soft_accuracies
from doubtless.metaeval.statistics import RATIOS, Statistic, by_group, ratio, ratio_parts, segment_figure
from doubtless.metaeval.ties import TieSweep

_VALUES = 1 << 21  # numbers laid out together


def draw_weights(rng: np.random.Generator, units: int, resamples: int) -> Floats:
    """How often each unit is taken in each resample (resamples by units).

    >>> draw_weights(np.random.default_rng(0), 5, 3).sum(axis=1)
    array([5., 5., 5.])
    """
    picked = rng.integers(0, units, size=(resamples, units)) + units * np.arange(resamples)[:, None]
    return (
        np.bincount(picked.ravel(), minlength=units * resamples).reshape(resamples, units).astype(np.float64)
    )


def resampled(statistic: Statistic, grid: Grid, metric: str, weights: Floats) -> Floats:
    """The figure of each resample; NaN where it has none.

    Parameters
    ----------
    statistic, grid, metric
        What is measured.
    weights
        Resamples by items (by systems, for figures of systems).
    """
    if statistic.level == "system":
        return _systems(statistic, grid, metric, weights)
    human, scores = grid.segment_scores(metric)
    if statistic.by == "item":
        return _over_items(statistic, human, scores, weights)
    if statistic.name in ("pearson", "spearman"):
        h, m = grouped(human, statistic.by), grouped(scores, statistic.by)
        # Cells of a flat grid stand system after system: each cell weighs as much as its item.
        repeat = len(human) if statistic.by == "none" else 1
        measure = {"pearson": weighted_pearson, "spearman": weighted_spearman}[statistic.name]
        columns = [measure(h[:, g], m[:, g], weights, repeat) for g in range(h.shape[1])]
        return _row_means(np.stack(columns, axis=1), statistic.undefined)
    found = [
        segment_figure(statistic, np.repeat(human, times, axis=1), np.repeat(scores, times, axis=1)).value
        for times in weights.astype(np.int64)
    ]
    return np.array(found)


def interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval of resampled figures, those without a value left out.

    >>> [round(end, 6) for end in interval(np.arange(101.0), 0.9)]
    [5.0, 95.0]
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _row_means(values: Floats, undefined: str) -> Floats:
    known = ~np.isnan(values)
    counts = np.full(len(values), values.shape[1]) if undefined == "zero" else known.sum(axis=1)
    sums = np.where(known, values, 0.0).sum(axis=1)
    return np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts > 0)


def _over_items(statistic: Statistic, h: Floats, m: Floats, weights: Floats) -> Floats:
    if statistic.name in RATIOS:
        return ratio(statistic.name, weights @ ratio_parts(statistic.name, h, m).T)
    if statistic.epsilon is None:
        sweep = TieSweep.of(h, m)
        found = np.array([sweep.best_weighted(row).accuracy for row in weights])
        return found if statistic.name == "acc_eq" else 2 * found - 1
    values = by_group(statistic.name, h, m, statistic.epsilon)
    large = (~np.isnan(h)).sum(axis=0) > 1
    used = large if statistic.undefined == "zero" else large & ~np.isnan(values)
    counts = weights @ used
    sums = weights @ np.where(used & ~np.isnan(values), values, 0.0)
    return np.divide(sums, counts, out=np.full(len(weights), np.nan), where=counts > 0)


def weighted_pearson(h: Floats, m: Floats, weights: Floats, repeat: int = 1) -> Floats:
    """Pearson's correlation under each row of weights; ``repeat`` cells share the weight of a unit.

    >>> weighted_pearson(np.array([1.0, 2, 4]), np.array([1.0, 3, 2]), np.array([[1.0, 1, 0], [0, 2, 1]]))
    array([ 1., -1.])
    """
    known = ~np.isnan(h)
    a, b = (np.where(known, x - x[known].mean(), 0.0) if known.any() else np.zeros(len(x)) for x in (h, m))
    moments = np.stack([known.astype(np.float64), a, b, a * a, b * b, a * b], axis=1)
    # Cells that share a weight are added up first: the product is then with units, not with cells.
    n, sa, sb, aa, bb, ab = (weights @ moments.reshape(repeat, -1, 6).sum(axis=0)).T
    n = np.maximum(n, 1.0)
    va, vb = aa - sa * sa / n, bb - sb * sb / n
    fine = (va > 1e-12 * np.maximum(aa, 1e-300)) & (vb > 1e-12 * np.maximum(bb, 1e-300))
    return np.divide(ab - sa * sb / n, np.sqrt(np.abs(va * vb)), out=np.full(len(n), np.nan), where=fine)


def weighted_spearman(h: Floats, m: Floats, weights: Floats, repeat: int = 1) -> Floats:
    """Spearman's correlation under each row of weights: ranks are running sums of the weights."""
    known = np.flatnonzero(~np.isnan(h))
    h, m = h[known], m[known]
    found = np.full(len(weights), np.nan)
    step = max(1, _VALUES // max(1, len(h)))
    for start in range(0, len(weights), step):
        w = np.tile(weights[start : start + step], (1, repeat))[:, known]
        x, y = _weighted_ranks(h, w), _weighted_ranks(m, w)
        n = np.maximum(w.sum(axis=1, keepdims=True), 1.0)
        x, y = x - (w * x).sum(axis=1, keepdims=True) / n, y - (w * y).sum(axis=1, keepdims=True) / n
        xx, yy, xy = ((w * p).sum(axis=1) for p in (x * x, y * y, x * y))
        fine = (xx > 1e-9) & (yy > 1e-9)
        found[start : start + step] = np.divide(xy, np.sqrt(xx * yy), out=np.full(len(w), np.nan), where=fine)
    return found


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Mean ranks of values that occur several times."""
    distinct, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    running = np.cumsum(weights[:, order], axis=1)
    ends = np.cumsum(np.bincount(place, minlength=len(distinct))) - 1
    upto = running[:, ends]
    before = np.concatenate([np.zeros((len(weights), 1)), upto[:, :-1]], axis=1)
    return ((upto + before + 1) / 2)[:, place]


def _systems(statistic: Statistic, grid: Grid, metric: str, weights: Floats) -> Floats:
    """Resample systems; a system is never compared with its own copy, which would always agree."""
    if statistic.name == "spa":
        human, scores = grid.segment_scores(metric)
        return _weighted_pairs(soft_accuracies(human, scores), weights)
    h, m = grid.system_scores(metric)
    known = np.isfinite(h) & np.isfinite(m)
    h, m, weights = h[known], m[known], weights[:, known]
    if statistic.name in ("pearson", "spearman"):
        measure = {"pearson": weighted_pearson, "spearman": weighted_spearman}[statistic.name]
        return measure(h, m, weights)
    first, second = np.triu_indices(len(h), 1)
    gold, mine = np.sign(h[first] - h[second]), np.sign(m[first] - m[second])
    if statistic.name == "accuracy":
        return _weighted_pairs((gold == mine).astype(np.float64), weights)
    pairs = weights[:, first] * weights[:, second]
    under = np.sqrt((pairs @ np.abs(gold)) * (pairs @ np.abs(mine)))
    return np.divide(pairs @ (gold * mine), under, out=np.full(len(weights), np.nan), where=under > 0)


def _weighted_pairs(values: Floats, weights: Floats) -> Floats:
    first, second = np.triu_indices(weights.shape[1], 1)
    pairs = weights[:, first] * weights[:, second] * ~np.isnan(values)
    counts = pairs.sum(axis=1)
    sums = pairs @ np.nan_to_num(values)
    return np.divide(sums, counts, out=np.full(len(weights), np.nan), where=counts > 0)
