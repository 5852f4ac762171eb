"""The figures by which metrics are judged, by name.

A :class:`Statistic` is data: what is measured, on segments or on systems, within which groups. At segment
level the figure is the mean over groups that have one; groups without (constant scores) are counted, and
count as zero if that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from doubtless.errors import InputError
from doubtless.metaeval.grid import Grid
from doubtless.metaeval.pairs import GROUPINGS, Floats, count_pairs, grouped, pair_blocks, tau_c
from doubtless.metaeval.soft import soft_pairwise_accuracy
from doubtless.metaeval.ties import calibrate_ties

SEGMENT = ("pearson", "spearman", "kendall", "tau_c", "tau_23", "acc_eq", "pdp", "darr")
SYSTEM = ("pearson", "spearman", "kendall", "accuracy", "spa")
WITH_TIES = ("tau_23", "acc_eq")
RATIOS = ("pdp", "darr")  # ratios of sums over groups, not means over groups
DARR_GAP = 25.0


@dataclass(frozen=True)
class Statistic:
    """What is measured.

    Parameters
    ----------
    name
        At segment level ``pearson spearman kendall`` (tau-b) ``tau_c tau_23 acc_eq pdp`` (Pearson of the
        differences of pairs) or ``darr`` (the Kendall-like figure up to WMT20, pairs 25 points apart);
        at system level ``pearson spearman kendall accuracy`` (of pairs of systems) or ``spa`` (soft).
    level
        ``segment`` or ``system``.
    by
        Groups within which segments are compared: ``item``, ``system`` or ``none``.
    epsilon
        Metric scores this close are tied; None calibrates the threshold on the data (acc_eq and tau_23 only).
    undefined
        What becomes of groups without a correlation: ``drop`` leaves them out, ``zero`` counts them as 0.

    Examples
    --------
    >>> Statistic.parse("segment:acc_eq*/item")
    Statistic(name='acc_eq', level='segment', by='item', epsilon=None, undefined='drop')
    >>> print(Statistic("kendall", by="item"), Statistic("spa", "system"))
    segment:kendall/item system:spa
    """

    name: str
    level: str = "segment"
    by: str = "none"
    epsilon: float | None = 0.0
    undefined: str = "drop"

    def __post_init__(self) -> None:
        if self.level not in ("segment", "system"):
            raise InputError(f"a level is segment or system, found '{self.level}'")
        names = SEGMENT if self.level == "segment" else SYSTEM
        if self.name not in names:
            raise InputError(
                f"there is no {self.level} figure '{self.name}', expected one of: {', '.join(names)}"
            )
        if self.by not in GROUPINGS or (self.level == "system" and self.by != "none"):
            raise InputError(f"{self.level} scores cannot be grouped by '{self.by}'")
        if self.epsilon != 0.0 and (self.name not in WITH_TIES or self.level != "segment"):
            raise InputError(
                f"only {' and '.join(WITH_TIES)} of segments take a tie threshold, not '{self.name}'"
            )
        if self.undefined not in ("drop", "zero"):
            raise InputError(f"undefined is drop or zero, found '{self.undefined}'")

    @classmethod
    def parse(cls, text: str, undefined: str = "drop") -> Statistic:
        """Read ``LEVEL:NAME/GROUPS``; a star after the name calibrates the tie threshold."""
        level, _, rest = text.rpartition(":")
        name, _, by = rest.partition("/")
        epsilon = None if name.endswith("*") else 0.0
        return cls(name.removesuffix("*"), level or "segment", by or "none", epsilon, undefined)

    def __str__(self) -> str:
        star = "*" if self.epsilon is None else f"({self.epsilon:g})" if self.epsilon else ""
        by = f"/{self.by}" if self.by != "none" else ""
        return f"{self.level}:{self.name}{star}{by}"

    @property
    def lowest(self) -> float:
        """The lower end of the range: -1 for correlations, 0 for accuracies."""
        return 0.0 if self.name in ("acc_eq", "accuracy", "spa") else -1.0


@dataclass(frozen=True)
class Figure:
    """A figure, with what it rests on.

    Parameters
    ----------
    value
        NaN where no group has one.
    groups
        Groups (or, for systems, pairs or systems) that it averages over.
    undefined
        Groups of two or more that have no value, because one side is constant.
    missing
        Translations without a human score.
    epsilon
        The tie threshold that was used.
    """

    value: float
    groups: int
    undefined: int = 0
    missing: int = 0
    epsilon: float = 0.0


def figure(statistic: Statistic, grid: Grid, metric: str) -> Figure:
    """Measure one metric on one language pair.

    >>> grid = Grid("en-de", ("A", "B", "C"), np.array([[1.0, 2], [3, 4], [5, 5]]), {"m": np.eye(3, 2)})
    >>> figure(Statistic("acc_eq", by="item"), grid, "m")
    Figure(value=0.16666666666666666, groups=2, undefined=0, missing=0, epsilon=0.0)
    """
    if statistic.level == "system":
        return _system_figure(statistic, grid, metric)
    return segment_figure(statistic, *grid.segment_scores(metric))


def _system_figure(statistic: Statistic, grid: Grid, metric: str) -> Figure:
    if statistic.name == "spa":
        human, scores = grid.segment_scores(metric)
        return Figure(soft_pairwise_accuracy(human, scores), len(human), missing=grid.missing)
    human, row = grid.system_scores(metric)
    known = np.isfinite(human) & np.isfinite(row)
    name = "acc_eq" if statistic.name == "accuracy" else statistic.name
    value = by_group(name, human[known][:, None], row[known][:, None])[0]
    undefined = int(np.isnan(value))
    if undefined and statistic.undefined == "zero":
        value = 0.0
    return Figure(float(value), int(known.sum()), undefined, int((~known).sum()))


def segment_figure(statistic: Statistic, human: Floats, scores: Floats) -> Figure:
    """Measure scores of systems by items (NaN: no human score)."""
    missing = int(np.isnan(human).sum())
    h, m = grouped(human, statistic.by), grouped(scores, statistic.by)
    if statistic.name in RATIOS:
        parts = ratio_parts(statistic.name, h, m)
        value = float(ratio(statistic.name, parts.sum(axis=1)))
        return Figure(value, int((parts[1] > 0).sum()), missing=missing)
    epsilon = statistic.epsilon
    if epsilon is None:
        best = calibrate_ties(h, m)
        counts = (~np.isnan(h)).sum(axis=0)
        value = best.accuracy if statistic.name == "acc_eq" else 2 * best.accuracy - 1
        return Figure(value, int((counts > 1).sum()), missing=missing, epsilon=best.epsilon)
    values = by_group(statistic.name, h, m, epsilon)
    large = (~np.isnan(h)).sum(axis=0) > 1
    undefined = int(np.isnan(values[large]).sum())
    return Figure(
        mean_of_groups(values, large, statistic.undefined), int(large.sum()), undefined, missing, epsilon
    )


def mean_of_groups(values: Floats, large: np.ndarray, undefined: str) -> float:
    """Mean over the groups of two or more, those without a value left out or counted as zero."""
    used = large if undefined == "zero" else large & ~np.isnan(values)
    return float(np.nansum(values[used]) / used.sum()) if used.any() else float("nan")


def by_group(name: str, human: Floats, metric: Floats, epsilon: float = 0.0) -> Floats:
    """A correlation of each group (members by groups); NaN where one side is constant or has one member."""
    if name == "pearson":
        return _pearson(human, metric)
    if name == "spearman":
        return _pearson(_ranks(human, human), _ranks(metric, human))
    counts = count_pairs(human, metric, epsilon)
    if name == "tau_c":
        return tau_c(counts, human, metric)
    return {"kendall": counts.tau_b, "tau_23": counts.tau_23, "acc_eq": counts.acc_eq}[name]()


def _pearson(human: Floats, metric: Floats) -> Floats:
    known = ~np.isnan(human)
    counts = np.maximum(known.sum(axis=0), 1)

    def centred(values: Floats) -> tuple[Floats, np.ndarray]:
        low = np.where(known, values, np.inf).min(axis=0)
        high = np.where(known, values, -np.inf).max(axis=0)
        filled = np.where(known, values, 0.0)
        parts = np.where(known, filled - filled.sum(axis=0) / counts, 0.0)
        largest = np.abs(parts).max(axis=0)
        # Scale before multiplying: squares of tiny or huge numbers would leave the range of floats.
        return parts / np.where(largest > 0, largest, 1.0), low < high

    if not len(human):
        return np.full(human.shape[1], np.nan)
    (a, varies), (b, also) = centred(human), centred(metric)
    top = np.einsum("ij,ij->j", a, b)
    bottom = np.sqrt(np.einsum("ij,ij->j", a, a) * np.einsum("ij,ij->j", b, b))
    fine = varies & also & (bottom > 0)
    return np.clip(np.divide(top, bottom, out=np.full(len(top), np.nan), where=fine), -1, 1)


def _ranks(values: Floats, human: Floats) -> Floats:
    """Ranks within each group; what is missing is put above all others, where it disturbs nobody."""
    known = ~np.isnan(human)
    return np.where(known, rankdata(np.where(known, values, np.inf), axis=0), np.nan)


def ratio_parts(name: str, human: Floats, metric: Floats) -> Floats:
    """Parts, one column a group, of the figures that are ratios of sums over groups and not means.

    The first row stands above the line, the others (one for ``darr``, two for ``pdp``) below it.
    """
    known = ~np.isnan(human)
    if name == "darr":
        alike, pairs = count_pairs_apart(human, metric, DARR_GAP)
        return np.stack([2 * alike - pairs, pairs])
    n = known.sum(axis=0)
    h, m = (
        np.where(known, x - np.where(known, x, 0.0).sum(axis=0) / np.maximum(n, 1), 0.0)
        for x in (human, metric)
    )
    # Differences of all pairs of a group multiply to n times the product of what is centred.
    return np.stack([n * (a * b).sum(axis=0) for a, b in ((h, m), (h, h), (m, m))])


def ratio(name: str, sums: Floats) -> Floats:
    """Put sums of the parts (along the last axis) together; NaN where nothing stands below the line."""
    under = np.sqrt(sums[..., 1] * sums[..., 2]) if name == "pdp" else sums[..., 1]
    return np.divide(sums[..., 0], under, out=np.full(under.shape, np.nan), where=under > 0)


def count_pairs_apart(human: Floats, metric: Floats, gap: float) -> tuple[Floats, Floats]:
    """Pairs whose human scores are at least ``gap`` apart: those the metric orders alike, and all of them."""
    alike, pairs = np.zeros((2, human.shape[1]))
    for part, first, second in pair_blocks(*human.shape):
        step = human[first, part] - human[second, part]
        up, down = (step >= gap) & (step > 0), (step <= -gap) & (step < 0)
        x, y = metric[first, part], metric[second, part]
        alike[part] += ((up & (x > y)) | (down & (x < y))).sum(axis=0)
        pairs[part] += (up | down).sum(axis=0)
    return alike, pairs
