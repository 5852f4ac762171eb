"""Pairs of scores: how often a metric orders two translations as humans do.

Scores stand in arrays of members by groups (:func:`grouped`): pairs are made of the members of one group. A
NaN among the human scores is a missing score, and its member is in no pair. Short groups (the systems of a
segment) are counted all at once; long ones (all segments of a system) by sorting, or in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from doubtless.errors import InputError
from doubtless.ranks import earlier_greater

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Booleans = np.ndarray[Any, np.dtype[np.bool_]]

GROUPINGS = ("none", "item", "system")
SHORT = 64  # members up to which all pairs of a group are laid out side by side
BLOCK = 1 << 15  # pairs looked at together: what they need stays in the cache


def grouped(scores: Floats, by: str) -> Floats:
    """Arrange scores of systems by items as members by groups.

    ``item`` compares the systems of one item, ``system`` the items of one system, ``none`` everything.

    >>> grouped(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), "system").shape
    (3, 2)
    """
    if by == "item":
        return scores
    if by == "system":
        return np.ascontiguousarray(scores.T)
    if by == "none":
        return scores.reshape(-1, 1)
    raise InputError(f"scores are grouped by one of {', '.join(GROUPINGS)}, found '{by}'")


@dataclass(frozen=True)
class PairCounts:
    """What became of the pairs of each group.

    ``ties_human`` and ``ties_metric`` are pairs tied in one only, ``ties_both`` in both.
    """

    concordant: Integers
    discordant: Integers
    ties_human: Integers
    ties_metric: Integers
    ties_both: Integers

    @property
    def pairs(self) -> Integers:
        """Number of pairs of each group."""
        parts = (self.concordant, self.discordant, self.ties_human, self.ties_metric, self.ties_both)
        return np.sum(parts, axis=0, dtype=np.int64)

    def tau_b(self) -> Floats:
        """Kendall's tau-b of each group; NaN where all pairs of one side are tied."""
        return tau_b(self.concordant, self.discordant, self.ties_human, self.ties_metric)

    def acc_eq(self) -> Floats:
        """Share of pairs ordered alike, a common tie included (Deutsch et al. 2023)."""
        return _share(self.concordant + self.ties_both, self.pairs)

    def tau_23(self) -> Floats:
        """The same as a correlation: agreeing minus other pairs, over all pairs (``2 acc_eq - 1``)."""
        return 2 * self.acc_eq() - 1


def tau_b(concordant: Any, discordant: Any, ties_human: Any, ties_metric: Any) -> Floats:
    """Tau-b from counts of pairs; NaN where all pairs of one side are tied."""
    ordered = np.asarray(concordant + discordant)
    sides = np.asarray(np.sqrt(ordered + ties_human) * np.sqrt(ordered + ties_metric))
    return np.divide(concordant - discordant, sides, out=np.full(sides.shape, np.nan), where=sides > 0)


def tau_c(counts: PairCounts, human: Floats, metric: Floats) -> Floats:
    """Stuart's tau-c of each group, for scales of unequally many values; NaN where one side is constant.

    The largest surplus of concordant pairs that the shorter scale allows, ``n² (m - 1) / (2 m)`` for ``m``
    values, is the measure.

    >>> human, metric = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> counts = count_pairs(human, metric)
    >>> counts.tau_b().round(3), tau_c(counts, human, metric)
    (array([0.816]), array([1.]))
    """
    known = ~np.isnan(human)
    values = np.minimum(_distinct(human, known), _distinct(metric, known))
    largest = known.sum(axis=0) ** 2 * (values - 1) / (2 * np.maximum(values, 1))
    surplus = counts.concordant - counts.discordant
    return np.divide(surplus, largest, out=np.full(largest.shape, np.nan), where=values > 1)


def _distinct(scores: Floats, known: Booleans) -> Integers:
    """Number of different values of each group."""
    ordered = np.sort(np.where(known, scores, np.nan), axis=0)  # what is not known comes last
    return (ordered[1:] > ordered[:-1]).sum(axis=0) + known.any(axis=0)


def _share(part: Integers, whole: Integers) -> Floats:
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def count_pairs(human: Floats, metric: Floats, epsilon: float = 0.0) -> PairCounts:
    """Count the pairs within each group; metric scores at most ``epsilon`` apart are tied.

    >>> counts = count_pairs(np.array([[1.0], [2.0], [2.0]]), np.array([[0.1], [0.3], [0.2]]))
    >>> counts.acc_eq().round(3), counts.tau_b().round(3)
    (array([0.667]), array([0.816]))
    """
    if epsilon < 0:
        raise InputError(f"a tie threshold must not be negative, found {epsilon}")
    groups = human.shape[1]
    if len(human) > SHORT and epsilon == 0:
        counts = np.array([count_by_sorting(human[:, g], metric[:, g]) for g in range(groups)]).T.reshape(
            5, -1
        )
        return PairCounts(*counts)
    total = np.zeros((5, groups), dtype=np.int64)
    for part, up, down, metric_up, metric_down, both in _comparisons(human, metric, epsilon):
        ordered, metric_ordered = up | down, metric_up | metric_down
        concordant = column_sums((up & metric_up) | (down & metric_down))
        ordered_both = column_sums(ordered & metric_ordered)
        by_human, by_metric = column_sums(ordered), column_sums(metric_ordered)
        total[:, part] += [
            concordant,
            ordered_both - concordant,
            by_metric - ordered_both,
            by_human - ordered_both,
            column_sums(both) - by_human - by_metric + ordered_both,
        ]
    return PairCounts(*total)


def column_sums(mask: Booleans) -> Integers:
    """Count the true ones of each column; bytes are added as bytes, 255 rows at a time, which is fast.

    >>> column_sums(np.array([[True, False], [True, True]]))
    array([2, 1])
    """
    cells = mask.view(np.uint8)
    total = np.zeros(mask.shape[1], dtype=np.int64)
    for start in range(0, len(cells), 255):
        total += np.add.reduce(cells[start : start + 255], axis=0, dtype=np.uint8)
    return total


Comparison = tuple[slice, Booleans, Booleans, Booleans, Booleans, Booleans]


def _comparisons(human: Floats, metric: Floats, epsilon: float) -> Iterator[Comparison]:
    """Compare all pairs, a block at a time.

    Yields the groups of the block and, with one row a pair, whether humans put the first member above or
    below the second, the same of the metric, and whether both members have a human score.
    """
    for part, first, second in pair_blocks(*human.shape):
        h, k = human[first, part], human[second, part]
        x, y = metric[first, part], metric[second, part]
        both = ~(np.isnan(h) | np.isnan(k))
        if epsilon:
            far = np.abs(x - y) > epsilon
            yield part, h > k, h < k, (x > y) & far & both, (x < y) & far & both, both
        else:
            yield part, h > k, h < k, (x > y) & both, (x < y) & both, both


def pair_blocks(members: int, groups: int) -> Iterator[tuple[slice, Integers, Integers]]:
    """Yield all pairs in blocks: a range of groups, and the first and second member of each pair."""
    if members <= SHORT:
        first, second = np.triu_indices(members, 1)
        step = max(1, BLOCK // max(1, len(first)))
        for start in range(0, groups, step):
            yield slice(start, min(start + step, groups)), first, second
        return
    rows = max(1, BLOCK // members)
    for group in range(groups):
        for start in range(0, members - 1, rows):
            stop = min(start + rows, members - 1)
            first = np.repeat(np.arange(start, stop), members - 1 - np.arange(start, stop))
            second = np.concatenate([np.arange(i + 1, members) for i in range(start, stop)])
            yield slice(group, group + 1), first, second


def count_by_sorting(human: Floats, metric: Floats) -> tuple[int, int, int, int, int]:
    """Count the pairs of one group in O(n log n), in the order of :class:`PairCounts`."""
    known = ~np.isnan(human)
    h, x = human[known], metric[known]
    order = np.lexsort((h, x))
    h, x = h[order], x[order]
    # Sorted by metric and, within equal metric scores, by human: an inversion is a discordant pair.
    discordant = int(earlier_greater(h).sum())
    pairs = len(h) * (len(h) - 1) // 2
    same = x[1:] == x[:-1]
    tied_metric, tied_both = tied_pairs(same), tied_pairs(same & (h[1:] == h[:-1]))
    ordered = np.sort(h)
    tied_human = tied_pairs(ordered[1:] == ordered[:-1])
    concordant = pairs - tied_metric - tied_human + tied_both - discordant
    return concordant, discordant, tied_human - tied_both, tied_metric - tied_both, tied_both


def tied_pairs(same_as_previous: Booleans) -> int:
    """Number of tied pairs, from whether each sorted value equals the one before it."""
    ends = np.flatnonzero(np.append(~same_as_previous, True))
    lengths = np.diff(ends, prepend=-1)
    return int((lengths * (lengths - 1) // 2).sum())


def agreements(human: Floats, metric: Floats, epsilon: float) -> Iterator[tuple[slice, Booleans, Booleans]]:
    """Yield blocks of pairs: their groups, whether metric and humans agree, and whether the pair counts."""
    for part, up, down, metric_up, metric_down, both in _comparisons(human, metric, epsilon):
        tied = ~(up | down | metric_up | metric_down)
        yield part, ((up & metric_up) | (down & metric_down) | tied) & both, both


def kinds(
    human: Floats, metric: Floats, epsilon: float
) -> Iterator[tuple[slice, np.ndarray, Booleans, Booleans]]:
    """Yield blocks of pairs: their groups, +1 concordant, -1 discordant, 0 tied by the metric; whether humans
    tie; and whether the pair counts. Where humans tie, 1 stands for "not tied by the metric".
    """
    for part, up, down, metric_up, metric_down, both in _comparisons(human, metric, epsilon):
        tied = ~(up | down)
        kind = np.where(tied, metric_up | metric_down, 0).astype(np.int8)
        kind += ((up & metric_up) | (down & metric_down)).astype(np.int8)
        kind -= ((up & metric_down) | (down & metric_up)).astype(np.int8)
        yield part, kind, tied & both, both
