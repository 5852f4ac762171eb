"""Metrics side by side: a figure each, its interval, and which differences are real."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from doubtless import __version__
from doubtless.errors import InputError
from doubtless.formats.words import listed
from doubtless.metaeval.bootstrap import draw_weights, interval, resampled
from doubtless.metaeval.correlation import pearson, williams
from doubtless.metaeval.grid import Grid
from doubtless.metaeval.pair_swaps import agreement_swap, item_swap, kendall_swap, ratio_swap
from doubtless.metaeval.pairs import Floats, grouped
from doubtless.metaeval.statistics import RATIOS, WITH_TIES, Figure, Statistic, by_group, figure
from doubtless.metaeval.swaps import (
    Swap,
    Verdict,
    mean_of,
    score_swap,
    soft_swap,
    verdict,
)


@dataclass(frozen=True)
class Plan:
    """How figures are averaged, resampled and tested.

    Parameters
    ----------
    average
        Over language pairs: ``macro``, the mean of their figures, or ``micro``, one figure of what is pooled
        (all items, or all pairs of systems).
    resamples
        Bootstrap resamples; 0 for no intervals.
    draws, stop
        Permutations of a test that has no closed form, and after how many that reach the difference it
        stops; 0 draws for no tests.
    unit
        What is swapped in tests of figures within items: whole ``items``; ``scores`` one by one, as the WMT
        tasks did in 2022; or ``pairs`` one by one, as they do since 2023, which finds differences too easily.
    test
        ``permutation``; or ``williams``, the closed form for Pearson's correlation of systems (all other
        figures are permuted all the same).
    level
        p-values up to this make a difference count.
    seed
        Of everything that is drawn.
    """

    average: str = "macro"
    resamples: int = 1000
    draws: int = 1000
    stop: int = 100
    unit: str = "items"
    test: str = "permutation"
    level: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if self.average not in ("macro", "micro"):
            raise InputError(f"an average is macro or micro, found '{self.average}'")
        if self.unit not in ("items", "pairs", "scores"):
            raise InputError(f"a unit is items, pairs or scores, found '{self.unit}'")
        if self.test not in ("permutation", "williams"):
            raise InputError(f"a test is permutation or williams, found '{self.test}'")
        if min(self.resamples, self.draws) < 0:
            raise InputError("resamples and draws must not be negative")


@dataclass(frozen=True)
class Standing:
    """Where one metric stands."""

    metric: str
    value: float
    low: float
    high: float
    rank: int | None
    by_pair: Mapping[str, Figure]


@dataclass(frozen=True)
class Comparison:
    """All metrics on one statistic, the best first.

    ``verdicts[a, b]`` tests whether ``a``, which stands before ``b``, is better. Metrics of one rank are not
    outperformed by another of that rank; a metric without a figure has none and stands last.
    """

    statistic: Statistic
    plan: Plan
    standings: tuple[Standing, ...]
    verdicts: Mapping[tuple[str, str], Verdict]
    swaps: Mapping[tuple[str, str], Swap]
    signature: str

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "statistic": str(self.statistic),
            "signature": self.signature,
            "metrics": [
                {
                    "metric": s.metric,
                    "value": s.value,
                    "low": s.low,
                    "high": s.high,
                    "rank": s.rank,
                    "pairs": {name: vars(found) for name, found in s.by_pair.items()},
                }
                for s in self.standings
            ],
            "tests": [
                {"better": a, "worse": b, "p": v.p, "delta": v.delta, "draws": v.draws}
                for (a, b), v in self.verdicts.items()
            ],
        }


def compare(
    statistic: Statistic, grids: Sequence[Grid], metrics: Sequence[str], plan: Plan | None = None
) -> Comparison:
    """Measure metrics on language pairs, and test their differences.

    Parameters
    ----------
    statistic
        What is measured.
    grids
        One for each language pair, with the same metrics.
    metrics
        Which of them.
    plan
        Averages, intervals and tests.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> human = rng.normal(size=(6, 100))
    >>> metrics = {"good": human + rng.normal(size=(6, 100)), "noise": rng.normal(size=(6, 100))}
    >>> grid = Grid("en-de", tuple("abcdef"), human, metrics)
    >>> found = compare(Statistic("kendall", by="item"), [grid], ["noise", "good"])
    >>> [(s.metric, s.rank, round(s.value, 2)) for s in found.standings]
    [('good', 1, 0.54), ('noise', 2, -0.04)]
    """
    plan = plan or Plan()
    if not grids or not metrics:
        raise InputError("there is nothing to compare: no language pair or no metric")
    if plan.test == "williams" and len(grids) > 1 and str(statistic) == "system:pearson":
        raise InputError(f"Williams' test speaks of one language pair, there are {len(grids)}")
    figures = {m: {grid.name: figure(statistic, grid, m) for grid in grids} for m in metrics}
    used, measured = grids, figures
    if plan.average == "micro" and statistic.level == "segment" and len(grids) > 1:
        used = [pooled(grids, statistic.by)]
        measured = {m: {grid.name: figure(statistic, grid, m) for grid in used} for m in metrics}
    shares = _shares(statistic, used, plan.average)
    values = {m: float(shares @ np.array([f.value for f in measured[m].values()])) for m in metrics}
    order = sorted(metrics, key=lambda m: (np.isnan(values[m]), -values[m], m))
    ends = {m: _interval(statistic, used, m, shares, plan) for m in metrics}
    defined = [m for m in order if not np.isnan(values[m])]
    swaps = {}
    for a, b in combinations(defined, 2) if plan.draws else ():
        thresholds = [(measured[a][grid.name].epsilon, measured[b][grid.name].epsilon) for grid in used]
        parts = [
            swap_of(statistic, grid, a, b, pair, plan.unit, plan.test)
            for grid, pair in zip(used, thresholds, strict=True)
        ]
        swaps[a, b] = mean_of(parts, shares)
    verdicts = {
        pair: verdict(swap, draws=plan.draws, seed=plan.seed, stop=plan.stop) for pair, swap in swaps.items()
    }
    ranks = dict(zip(defined, clusters(defined, verdicts, plan.level), strict=True)) if plan.draws else {}
    standings = tuple(Standing(m, values[m], *ends[m], ranks.get(m), figures[m]) for m in order)
    line = signature(statistic, grids, plan, verdicts, {swap.unit for swap in swaps.values()})
    return Comparison(statistic, plan, standings, verdicts, swaps, line)


def _shares(statistic: Statistic, grids: Sequence[Grid], average: str) -> Floats:
    """The weight of each language pair: equal, or by pairs of systems."""
    if average == "macro" or statistic.level == "segment":
        return np.full(len(grids), 1 / len(grids))
    if statistic.name not in ("accuracy", "spa"):
        raise InputError(
            f"'{statistic}' cannot be pooled over language pairs, whose scales differ: use macro"
        )
    pairs = np.array([len(grid.systems) * (len(grid.systems) - 1) / 2 for grid in grids])
    return pairs / pairs.sum()


def _interval(
    statistic: Statistic, grids: Sequence[Grid], metric: str, shares: Floats, plan: Plan
) -> tuple[float, float]:
    if not plan.resamples:
        return float("nan"), float("nan")
    rng = np.random.default_rng(plan.seed)
    total = np.zeros(plan.resamples)
    for share, grid in zip(shares, grids, strict=True):
        units = len(grid.systems) if statistic.level == "system" else grid.human.shape[1]
        total += share * resampled(statistic, grid, metric, draw_weights(rng, units, plan.resamples))
    return interval(total)


def swap_of(
    statistic: Statistic,
    grid: Grid,
    first: str,
    second: str,
    epsilons: tuple[float, float] = (0.0, 0.0),
    unit: str = "items",
    test: str = "permutation",
) -> Swap:
    """The test of a difference that fits a statistic.

    Figures within items swap whole items, or pairs; tie thresholds stay as they were calibrated. Agreement
    within systems or overall can only swap pairs. Everything else swaps standardised scores.
    """
    if statistic.name == "spa":
        human, scores = grid.segment_scores(first)
        return soft_swap(human, scores, grid.segment_scores(second)[1])
    if statistic.level == "system":
        (human, a), (_, b) = grid.system_scores(first), grid.system_scores(second)
        known = np.isfinite(human) & np.isfinite(a) & np.isfinite(b)
        name = "acc_eq" if statistic.name == "accuracy" else statistic.name
        human, a, b = human[known], a[known], b[known]
        swap = score_swap(name, human[:, None], a[:, None], b[:, None])
        if test == "williams" and name == "pearson":
            r = pearson(human, a), pearson(human, b), pearson(a, b)
            return replace(swap, exact=partial(williams, *r, len(human)), unit=test)
        return swap
    human, a, b = (grouped(x, statistic.by) for x in (grid.human, grid.metrics[first], grid.metrics[second]))
    by_item = statistic.by == "item"
    if statistic.name == "darr" and not by_item:
        raise InputError(f"differences of '{statistic}' are tested within items only: ask for no draws")
    if unit == "scores" and statistic.epsilon != 0.0:
        raise InputError(f"a tie threshold fits one metric's scores: '{statistic}' cannot swap scores")
    if statistic.name in WITH_TIES and unit != "scores":
        scale = 1.0 if statistic.name == "acc_eq" else 2.0
        return agreement_swap(human, a, b, epsilons, unit=unit if by_item else "pairs", scale=scale)
    if by_item and unit == "items" and statistic.name in RATIOS:
        return ratio_swap(statistic.name, human, a, b)
    if by_item and unit == "items":
        values = [by_group(statistic.name, human, scores) for scores in (a, b)]
        if statistic.undefined == "zero":
            large = (~np.isnan(human)).sum(axis=0) > 1
            values = [np.where(large, np.nan_to_num(v), np.nan) for v in values]
        return item_swap(*values)
    if by_item and unit == "pairs" and statistic.name == "kendall":
        return kendall_swap(human, a, b)
    return score_swap(statistic.name, human, a, b)


def clusters(order: Sequence[str], verdicts: Mapping[tuple[str, str], Verdict], level: float) -> list[int]:
    """Ranks of metrics from best to worst: a new rank begins where one of the current rank is better.

    >>> better, not_better = Verdict(0.01, 0.1, 0), Verdict(0.3, 0.01, 0)
    >>> clusters(["a", "b", "c"], {("a", "b"): not_better, ("a", "c"): better, ("b", "c"): not_better}, 0.05)
    [1, 1, 2]
    """
    ranks: list[int] = []
    start, rank = 0, 1
    for i, metric in enumerate(order):
        if any(verdicts[other, metric].p <= level for other in order[start:i]):
            start, rank = i, rank + 1
        ranks.append(rank)
    return ranks


def pooled(grids: Sequence[Grid], by: str) -> Grid:
    """All language pairs as one grid: items one after the other; what a pair has no system for is missing.

    >>> one = Grid("en-de", ("A", "B"), np.zeros((2, 3)), {"m": np.ones((2, 3))})
    >>> pooled([one, one], "item").human.shape, pooled([one, one], "system").human.shape
    ((2, 6), (4, 6))
    """
    counts = [len(grid.systems) for grid in grids]
    names = [name for name in grids[0].metrics if all(name in grid.metrics for grid in grids)]
    # Grouped by system, a system of another pair is another system; else rows are only places.
    starts = np.concatenate([[0], np.cumsum(counts[:-1])]) if by == "system" else np.zeros(len(grids))
    height = sum(counts) if by == "system" else max(counts)

    def joined(parts: Sequence[Floats]) -> Floats:
        blocks = []
        for part, start in zip(parts, starts.astype(int), strict=True):
            block = np.full((height, part.shape[1]), np.nan)
            block[start : start + len(part)] = part
            blocks.append(block)
        return np.concatenate(blocks, axis=1)

    return Grid(
        ",".join(grid.name for grid in grids),
        tuple(str(i) for i in range(height)),
        joined([grid.human for grid in grids]),
        {name: joined([grid.metrics[name] for grid in grids]) for name in names},
    )


def signature(
    statistic: Statistic,
    grids: Sequence[Grid],
    plan: Plan,
    verdicts: Mapping[tuple[str, str], Verdict],
    units: Collection[str],
) -> str:
    """Say, in one line, all that a figure depends on; ``units`` are what the tests swapped."""
    missing = sum(grid.missing for grid in grids)
    unit = "systems" if statistic.level == "system" else "items"
    parts = [
        f"stat:{statistic}",
        f"undefined:{statistic.undefined}",
        f"pairs:{listed([grid.name for grid in grids]).replace(', ', '+')}",
        f"avg:{plan.average}",
        f"human:{_once([grid.gold for grid in grids])}",
        *([f"ref:{_once([grid.reference for grid in grids])}"] if grids[0].reference else []),
        f"systems:{'+'.join(str(len(grid.systems)) for grid in grids)}",
        f"missing:{missing}",
        f"boot:{unit}.{plan.resamples}" if plan.resamples else "boot:no",
    ]
    if verdicts:
        exact = sum(v.draws == 0 for v in verdicts.values())
        counts = f"{exact}.exact+{len(verdicts) - exact}.of.{plan.draws}.stop.{plan.stop}"
        parts.append(f"test:{'+'.join(sorted(units))}.{counts}")
    else:
        parts.append("test:no")
    return "|".join([*parts, f"seed:{plan.seed}", f"version:doubtless.{__version__}"])


def _once(values: Sequence[str]) -> str:
    """One value if all are alike, else the value of each language pair."""
    return values[0] if len(set(values)) == 1 else "+".join(values)
