"""Tie calibration: the threshold below which differences of a metric should count as ties (acc_eq*).

A pair can only change at the threshold that equals its own difference: pairs that humans tie are gained
there, concordant pairs are lost, discordant ones are wrong either way. So the accuracy at a threshold is
the accuracy at zero, plus the gains up to it, minus the losses up to it, and its maximum lies at zero or at
a gain. One sort of the gains, one of the losses and one merge find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from doubtless.metaeval.pairs import Booleans, Floats, Integers, column_sums, pair_blocks

MOST_PAIRS = 1 << 24  # above, the pairs are not kept in memory
_SHIFT = np.uint64(44)  # what is left of a float64: the exponent and eight bits


@dataclass(frozen=True)
class Threshold:
    """The best threshold (the smallest, where several are equally good) and the accuracy there."""

    epsilon: float
    accuracy: float


@dataclass(frozen=True)
class TieSweep:
    """All differences at which a pair changes, and what the pairs are worth at threshold zero.

    Parameters
    ----------
    gains, losses
        Absolute differences of the metric, of pairs tied by humans and of concordant pairs.
    gain_group, loss_group
        The group of each.
    agreeing, pairs
        Agreeing pairs at threshold zero and all pairs, of each group.
    """

    gains: Floats
    losses: Floats
    gain_group: Integers
    loss_group: Integers
    agreeing: Integers
    pairs: Integers

    @classmethod
    def of(cls, human: Floats, metric: Floats) -> TieSweep:
        """Look at all pairs of arrays of members by groups."""
        gains, losses = [np.zeros(0)], [np.zeros(0)]
        groups: tuple[list[Integers], list[Integers]] = ([], [])
        agreeing, pairs = np.zeros((2, human.shape[1]), dtype=np.int64)
        for part, first, second in pair_blocks(*human.shape):
            difference, tied, concordant, both = _look(human, metric, part, first, second)
            gained = tied & (difference > 0)
            agreeing[part] += column_sums(concordant | (tied & (difference == 0)))
            pairs[part] += column_sums(both)
            for kind, found, places in ((gained, gains, groups[0]), (concordant, losses, groups[1])):
                where = np.flatnonzero(kind)
                found.append(difference.ravel()[where])
                places.append(where % difference.shape[1] + part.start)
        gain_group, loss_group = map(_joined, groups)
        return cls(_joined(gains), _joined(losses), gain_group, loss_group, agreeing, pairs)

    def best(self) -> Threshold:
        """Find the best mean accuracy over the groups."""
        used = self.pairs > 0
        sizes = self.pairs[used]
        if not len(sizes):
            return Threshold(0.0, float("nan"))
        if (sizes != sizes[0]).any():
            return self.best_weighted(used.astype(np.float64))
        # Groups of one size: whole numbers, and no need to know which pair is which.
        gains, losses = np.sort(self.gains), np.sort(self.losses)
        surplus = np.arange(1, len(gains) + 1) - np.searchsorted(losses, gains, side="right")
        start = int(self.agreeing.sum())
        place = int(surplus.argmax()) if len(surplus) else -1
        gained = int(surplus[place]) if place >= 0 and surplus[place] > 0 else 0
        epsilon = float(gains[place]) if gained else 0.0
        return Threshold(epsilon, (start + gained) / (int(sizes[0]) * len(sizes)))

    @cached_property
    def _sorted(self) -> tuple[Floats, Integers, Integers, Integers]:
        by_gain, by_loss = np.argsort(self.gains, kind="stable"), np.argsort(self.losses, kind="stable")
        gains = self.gains[by_gain]
        passed = np.searchsorted(self.losses[by_loss], gains, side="right")
        return gains, self.gain_group[by_gain], self.loss_group[by_loss], passed

    def best_weighted(self, weights: Floats) -> Threshold:
        """Find the best weighted mean accuracy over the groups (bootstrap: how often each was drawn)."""
        used = self.pairs > 0
        worth = np.divide(weights, self.pairs, out=np.zeros(len(weights)), where=used)
        total = float(weights[used].sum())
        gains, gain_group, loss_group, passed = self._sorted
        start = float(worth @ self.agreeing)
        if not len(gains) or not total:
            return Threshold(0.0, start / total if total else float("nan"))
        lost = np.concatenate([[0.0], np.cumsum(worth[loss_group])])
        surplus = np.cumsum(worth[gain_group]) - lost[passed]
        place = int(surplus.argmax())
        # A gain of less than rounding is none: sums of unequal weights are not exact.
        if surplus[place] <= 1e-12 * total:
            return Threshold(0.0, start / total)
        place = int((surplus >= surplus[place] - 1e-12 * total).argmax())
        return Threshold(float(gains[place]), (start + float(surplus[place])) / total)


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _look(
    human: Floats, metric: Floats, part: slice, first: Integers, second: Integers
) -> tuple[Floats, Booleans, Booleans, Booleans]:
    """The differences of a block, whether humans tie, whether it is concordant, whether it counts."""
    h, k = human[first, part], human[second, part]
    step = metric[first, part] - metric[second, part]
    tied, up, down = h == k, h > k, h < k  # all three are false where a human score is missing
    return np.abs(step), tied, (up & (step > 0)) | (down & (step < 0)), tied | up | down


def calibrate_ties(human: Floats, metric: Floats) -> Threshold:
    """Find the tie threshold of the best mean accuracy over the groups.

    Parameters
    ----------
    human, metric
        Members by groups; NaN is a missing human score.

    Returns
    -------
    Threshold

    Examples
    --------
    >>> human = np.array([[1.0], [1.0], [2.0]])
    >>> calibrate_ties(human, np.array([[0.50], [0.54], [0.9]]))
    Threshold(epsilon=0.040000000000000036, accuracy=1.0)
    """
    members, groups = human.shape
    if members * (members - 1) // 2 * groups <= MOST_PAIRS:
        return TieSweep.of(human, metric).best()
    return _search_in_two_passes(human, metric)


def _search_in_two_passes(human: Floats, metric: Floats) -> Threshold:
    """Calibrate without keeping the pairs.

    The first pass adds up gains and losses in buckets of almost equal differences. A bucket whose gains, all
    taken before its losses, cannot lift it above the best bucket end holds no optimum. The second pass
    keeps the pairs of the other buckets only.
    """
    counts = (~np.isnan(human)).sum(axis=0)
    sizes = counts * (counts - 1) // 2
    used = sizes > 0
    worth = np.divide(1.0, sizes, out=np.zeros(len(sizes)), where=used) / max(1, int(used.sum()))
    buckets = 1 << (63 - int(_SHIFT) + 1)
    gained, lost = np.zeros((2, buckets))
    start = 0.0
    for part, first, second in pair_blocks(*human.shape):
        difference, tied, concordant, _ = _look(human, metric, part, first, second)
        value = np.broadcast_to(worth[part], difference.shape)
        start += float((value * (concordant | (tied & (difference == 0)))).sum())
        for kind, sums in ((tied & (difference > 0), gained), (concordant, lost)):
            place = difference[kind].view(np.uint64) >> _SHIFT
            sums += np.bincount(place.astype(np.int64), weights=value[kind], minlength=buckets)
    ends = start + np.cumsum(gained - lost)
    best = max(start, float(ends.max()))
    promising = (ends + lost >= best - 1e-12) & (gained > 0)
    before = ends - gained + lost
    kept: list[tuple[Floats, Floats]] = []
    for part, first, second in pair_blocks(*human.shape):
        difference, tied, concordant, _ = _look(human, metric, part, first, second)
        kind = (tied & (difference > 0)) | concordant
        kind &= promising[(difference.view(np.uint64) >> _SHIFT).astype(np.int64)]
        value = np.broadcast_to(worth[part], difference.shape)
        kept.append((difference[kind], np.where(tied, value, -value)[kind]))
    differences, values = (np.concatenate(column) for column in zip(*kept, strict=True))
    return _best_of(differences, values, before, start)


def _best_of(differences: Floats, values: Floats, before: Floats, start: float) -> Threshold:
    """Sweep the kept pairs: within a bucket the accuracy begins at what stood before it."""
    order = np.argsort(differences, kind="stable")
    differences, values = differences[order], values[order]
    if not len(differences):
        return Threshold(0.0, start)
    bucket = (differences.view(np.uint64) >> _SHIFT).astype(np.int64)
    running = np.cumsum(values)
    first = np.searchsorted(bucket, bucket, side="left")
    accuracy = before[bucket] + running - running[first] + values[first]
    accuracy[:-1][differences[1:] == differences[:-1]] = -np.inf  # a threshold takes all its equals along
    best = float(accuracy.max())
    if best <= start + 1e-12:
        return Threshold(0.0, start)
    return Threshold(float(differences[(accuracy >= best - 1e-12).argmax()]), best)
