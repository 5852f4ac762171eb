"""What deferral is worth: the ranking of systems when people score a part, against that when they score all.

As in Zouhar et al. (2025, figure 6): segments that are deferred get their human score, the others keep that
of the metric, and the means of systems are correlated (Spearman) with those of human scores alone, within
each language pair; the mean over pairs is the figure. Beyond the paper, budgets may be counted in words,
segments are resampled for an interval, and ``drawn`` shows the estimator of :mod:`doubtless.decide.mixed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from doubtless.decide.defer import Case, urgency
from doubtless.decide.mixed import EVEN, chances, draw, estimate
from doubtless.errors import InputError
from doubtless.forecast import Floats

SHARES = tuple(round(0.1 * i, 1) for i in range(11))
DRAWN = "drawn"
RESAMPLES = 200
_DRAWS = 20


@dataclass(frozen=True, eq=False)
class Setting:
    """The segments of one language pair, with everything people said about them.

    Parameters
    ----------
    case
        What rules look at, human scores included.
    system, segment
        Numbers of each row's system and segment, counted from 0.
    cost
        What it costs to have each row scored.
    strata
        Groups of rows that all get their share of a budget, if any.
    even
        The part of the chances that is equal for all rows that may be drawn.
    """

    case: Case
    system: np.ndarray
    segment: np.ndarray
    cost: Floats
    strata: np.ndarray | None = None
    even: float = EVEN

    def __post_init__(self) -> None:
        if self.case.human is None or np.isnan(self.case.human).any():
            raise InputError("a simulation needs the human score of every row")
        if self.system.max() < 1:
            raise InputError("a simulation ranks systems: it needs at least two of them")


def curves(
    settings: Sequence[Setting],
    rules: Sequence[str],
    *,
    shares: Sequence[float] = SHARES,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """The mean system-level Spearman correlation over settings, for each rule and each share of the budget.

    Parameters
    ----------
    settings
        One a language pair.
    rules
        Names of rules, and ``drawn``: segments drawn with chances that grow with the expected error, and
        means corrected accordingly.
    shares
        Budgets, as shares of what it would cost to have everything scored.
    resamples
        Bootstrap samples of segments, for intervals; the random rules also draw anew in each.
    seed
        Of all that is random.

    Returns
    -------
    One row a rule and a share: ``rule``, ``share``, ``spearman``, the ends ``lower`` and ``upper`` of its 95
    % interval, and ``gain`` over the random rule with its interval, if that is among the rules.

    Examples
    --------
    >>> from doubtless.forecast import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> system, segment = np.repeat(np.arange(5), 40), np.tile(np.arange(40), 5)
    >>> human = system / 5 + rng.normal(size=200)
    >>> case = Case(Gaussian(rng.normal(size=200), np.ones(200)), human=human)
    >>> rows = curves([Setting(case, system, segment, np.ones(200))], ["score"], shares=[0, 1], resamples=9)
    >>> rows[1]["spearman"]
    1.0
    """
    found: dict[str, Floats] = {}
    for rule in rules:
        parts = [
            _correlations(setting, rule, np.asarray(shares, dtype=np.float64), resamples, seed + number)
            for number, setting in enumerate(settings)
        ]
        found[rule] = np.mean(parts, axis=0)
    rows = []
    for rule, values in found.items():
        for column, share in enumerate(shares):
            row = {"rule": rule, "share": float(share), **_summary("spearman", values[:, column])}
            if "random" in found and rule != "random":
                row |= _summary("gain", values[:, column] - found["random"][:, column])
            rows.append(row)
    return rows


def _summary(name: str, values: Floats) -> dict[str, float]:
    """The first value is that of the data themselves (for random rules, a mean), the others of resamples."""
    ends = {"spearman": ("lower", "upper")}.get(name, (f"{name}_lower", f"{name}_upper"))
    low, high = np.quantile(values[1:], [0.025, 0.975]) if len(values) > 1 else (np.nan, np.nan)
    return {name: float(values[0]), ends[0]: float(low), ends[1]: float(high)}


def _correlations(setting: Setting, rule: str, shares: Floats, resamples: int, seed: int) -> Floats:
    """Correlations (1 + resamples, shares): of the data, and of resampled segments."""
    rng = np.random.default_rng(seed)
    segments = int(setting.segment.max()) + 1
    counts = rng.multinomial(segments, np.full(segments, 1 / segments), size=resamples)
    weights = np.vstack([np.ones(segments), counts])[:, setting.segment].astype(np.float64)
    human = _means(setting, weights, setting.case.human)
    if rule == DRAWN:
        means = _drawn(setting, weights, shares, rng)
    elif rule == "random":
        means = _deferred(setting, weights, rng.random(weights.shape), shares)
    else:
        wish = urgency(rule, replace(setting.case, cost=setting.cost))
        means = _deferred(setting, weights, wish, shares)
    correlations = _spearman(means, human[:, None, :])
    if rule in (DRAWN, "random"):
        # One draw from the data says little: the mean over many stands for it.
        plain = np.ones((_DRAWS, len(setting.cost)))
        again = (
            _drawn(setting, plain, shares, rng)
            if rule == DRAWN
            else _deferred(setting, plain, rng.random(plain.shape), shares)
        )
        correlations[0] = _spearman(again, human[:1, None, :]).mean(axis=0)
    return correlations


def _deferred(setting: Setting, weights: Floats, wish: Floats, shares: Floats) -> Floats:
    """Means of systems (resamples, shares, systems) when the most urgent rows get their human score.

    Rows are taken in order of urgency; each is told from which share on it is, and its correction is added up
    there.
    """
    case, systems = setting.case, int(setting.system.max()) + 1
    assert case.human is not None
    order = np.argsort(-wish, axis=-1, kind="stable")
    order = np.broadcast_to(order, weights.shape)
    if setting.strata is not None:
        return _shared_out(setting, weights, order, shares)
    drawn = np.take_along_axis(weights, order, axis=1)
    spent = np.cumsum(drawn * setting.cost[order], axis=1)
    first = np.searchsorted(shares, spent / spent[:, -1:] - 1e-12)
    cell = (np.arange(len(weights))[:, None] * (len(shares) + 1) + first) * systems + setting.system[order]
    gap = drawn * (case.human - case.forecast.score)[order]
    size = len(weights) * (len(shares) + 1) * systems
    added = np.bincount(cell.ravel(), gap.ravel(), minlength=size).reshape(len(weights), -1, systems)
    n = _sums(setting, weights, np.ones(weights.shape[1]))
    metric = _means(setting, weights, case.forecast.score)
    return metric[:, None, :] + np.cumsum(added, axis=1)[:, :-1] / n[:, None, :]


def _shared_out(setting: Setting, weights: Floats, order: np.ndarray, shares: Floats) -> Floats:
    """The same means when each stratum gets its share, and the most urgent of all what is left over.

    This is how :func:`doubtless.decide.budget.spend` shares out. A row that was taken from what was left over
    may be out at a larger budget: each share is looked at by itself.
    """
    case, costs = setting.case, weights * setting.cost
    assert case.human is not None
    total, at = costs.sum(axis=1, keepdims=True), _places(setting, costs, order)
    n, metric = (
        _sums(setting, weights, values) for values in (np.ones(len(setting.cost)), case.forecast.score)
    )
    means = np.empty((len(weights), len(shares), n.shape[1]))
    for column, share in enumerate(shares):
        taken = at <= share + 1e-12
        left = share * total - (costs * taken).sum(axis=1, keepdims=True)
        spent = np.cumsum(np.take_along_axis(costs * ~taken, order, axis=1), axis=1)
        more = np.empty_like(taken)
        np.put_along_axis(more, order, spent <= left + 1e-12 * total, axis=1)
        gap = _sums(setting, weights * (taken | more), case.human - case.forecast.score)
        means[:, column] = (metric + gap) / n
    return means


def _places(setting: Setting, costs: Floats, order: np.ndarray) -> Floats:
    """Which share of its stratum's costs is spent when a row has been taken, in order of urgency."""
    stratum = _strata(setting)
    # Stratum after stratum, each in order of urgency: every resample has them in the same columns.
    order = np.take_along_axis(order, np.argsort(stratum[order], axis=1, kind="stable"), axis=1)
    sizes = np.bincount(stratum)
    ends = np.cumsum(sizes)
    spent = np.cumsum(np.take_along_axis(costs, order, axis=1), axis=1)
    before = np.hstack([np.zeros((len(costs), 1)), spent[:, ends[:-1] - 1]])
    own = np.repeat(spent[:, ends - 1] - before, sizes, axis=1)
    at = np.empty_like(spent)
    # A stratum that a resample has left out costs nothing, and changes nothing.
    np.put_along_axis(
        at, order, (spent - np.repeat(before, sizes, axis=1)) / np.where(own > 0, own, 1), axis=1
    )
    return at


def _drawn(setting: Setting, weights: Floats, shares: Floats, rng: np.random.Generator) -> Floats:
    """Means of systems when rows are drawn by their doubt and the metric is corrected by what is found."""
    case, systems = setting.case, int(setting.system.max()) + 1
    assert case.human is not None
    doubt, score, human = urgency("confidence", case), case.forecast.score, case.human
    strata = setting.system
    if setting.strata is not None:
        group = _strata(setting)
        strata = strata * (group.max() + 1) + group
    means = np.empty((len(weights), len(shares), systems))
    for number, weight in enumerate(weights):
        rows = np.repeat(np.arange(len(weight)), weight.astype(np.int64))
        system, cost = setting.system[rows], setting.cost[rows]
        if len(np.unique(system)) < systems:
            raise InputError("a system has too few segments to be resampled")
        for column, share in enumerate(shares):
            chance = chances(doubt[rows], cost, share * cost.sum(), even=setting.even, strata=strata[rows])
            known = draw(chance, strata[rows], seed=rng)
            # Where too little was drawn to correct anything, the metric stands alone.
            if np.bincount(system, known & (chance < 1), minlength=systems).min() < 2 and share < 1:
                means[number, column] = _means(setting, weight[None], score)[0]
                continue
            mixed = estimate(system, score[rows], np.where(known, human[rows], np.nan), chance)
            means[number, column] = mixed.found.mean
    return means


def _strata(setting: Setting) -> np.ndarray:
    """The number of each row's stratum, counted from 0."""
    _, numbers = np.unique(np.asarray(setting.strata), return_inverse=True)
    return numbers


def _sums(setting: Setting, weights: Floats, values: Floats) -> Floats:
    """Sums over the rows of each system (resamples, systems)."""
    member = setting.system[:, None] == np.arange(setting.system.max() + 1)
    sums: Floats = (weights * values) @ member.astype(np.float64)
    return sums


def _means(setting: Setting, weights: Floats, values: Floats | None) -> Floats:
    assert values is not None
    n = _sums(setting, weights, np.ones(len(values)))
    return _sums(setting, weights, values) / np.maximum(n, 1)


def _spearman(x: Floats, y: Floats) -> Floats:
    """Rank correlations along the last axis; 0 where one side does not rank at all."""
    a, b = (rankdata(values, axis=-1) for values in (x, np.broadcast_to(y, x.shape)))
    a, b = a - a.mean(axis=-1, keepdims=True), b - b.mean(axis=-1, keepdims=True)
    scale = np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    return np.where(scale > 0, (a * b).sum(axis=-1) / np.where(scale > 0, scale, 1), 0.0)
