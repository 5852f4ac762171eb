"""Do two metrics of words differ by more than other segments and other annotators could explain?

Segments and annotators are both drawn again: an annotator with other habits moves figures as much as other
texts do. Few annotators are the difficulty. With three of them, all would favour the same metric by chance
every fourth time, so that percentiles of the bootstrap are no test. The bootstrap gives the standard error,
one annotator fewer being drawn than there are, which makes the variance right for small numbers. It is
compared with a mixture of two of Student's distributions, one with the degrees of freedom of the annotators
and one with those of the segments, by their shares in the variance (after Cochran and Cox).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtr

from doubtless.errors import InputError
from doubtless.formats.words import quoted
from doubtless.metaeval.bootstrap import draw_weights
from doubtless.metaeval.detection import Floats, Ranking
from doubtless.systems import holm
from doubtless.words.judged import Judged

COMPARED = ("ap", "f1")
"""Figures by which metrics can be compared."""

_NO_ERROR = 1e-12  # draws that differ by less differ by rounding alone


@dataclass(frozen=True)
class Difference:
    """How much better the first metric is than the second, and how far that can be trusted.

    Parameters
    ----------
    figure
        ``ap``, average precision, or ``f1``, the best F1; averaged over annotators, then over groups.
    value, low, high
        First minus second, and its interval.
    p, p_holm
        Two-sided p-value, and the same corrected for the number of pairs of metrics. Like the interval NaN
        where draws cannot tell how much of the difference is chance: if no group has two segments, or if
        the metrics differ by the same in all draws.
    error, annotator_share
        The standard error, and the share of its square that is due to annotators.
    annotators, segments
        How many were drawn from. One annotator cannot disagree: then only segments are drawn, and nothing
        is said about other annotators.
    """

    first: str
    second: str
    figure: str
    value: float
    low: float
    high: float
    p: float
    p_holm: float
    error: float
    annotator_share: float
    annotators: int
    segments: int


def differences(
    judged: Judged, figure: str = "ap", *, resamples: int = 1_000, seed: int = 0, level: float = 0.95
) -> list[Difference]:
    """Compare every two metrics.

    Parameters
    ----------
    judged
        The words. Annotators of the same name in several groups are drawn together.
    figure
        ``ap`` or ``f1``.
    resamples, seed
        Draws of segments (within groups) and annotators.
    level
        Of the intervals.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> wrong = (rng.random(300) < 0.3).astype(float)
    >>> scores = {"good": wrong + rng.normal(size=300), "blind": rng.normal(size=300)}
    >>> judged = Judged(scores, {"a": wrong}, np.arange(300) // 3, ["de"] * 100)
    >>> found = differences(judged, resamples=200)[0]
    >>> found.value > 0.1, found.p < 0.05
    (True, True)
    """
    check_figure(figure)
    if resamples < 2 or not 0 < level < 1:
        raise InputError("a comparison needs at least two resamples and a level between 0 and 1")
    segments, people = _draws(judged, resamples, np.random.default_rng(seed))
    whole = _figures(judged, figure, np.ones((1, len(judged.group))))
    drawn = _mean_over(_mean_over(_figures(judged, figure, segments), 2, people[:, None, :, None]), 1)
    by_annotator, overall = _mean_over(whole, 1)[0], _mean_over(_mean_over(whole, 2), 1)[0]
    names = list(judged.scores)
    found = []
    for i, j in combinations(range(len(names)), 2):
        moved, single = (values[:, i] - values[:, j] for values in (drawn, by_annotator))
        value = float(overall[i] - overall[j])
        doubt = _Doubt.of(value, moved, single, len(judged.group), len(judged.groups))
        p, reach = doubt.p_value(value), doubt.reach(level)
        counts = len(judged.labels), len(judged.group)
        ends, of_doubt = (value - reach, value + reach), (doubt.error, doubt.share)
        found.append(Difference(names[i], names[j], figure, value, *ends, p, p, *of_doubt, *counts))
    corrected = holm([difference.p for difference in found])
    return [replace(d, p_holm=float(p)) for d, p in zip(found, corrected, strict=True)]


def check_figure(figure: str) -> None:
    """Refuse a figure by which metrics cannot be compared."""
    if figure not in COMPARED:
        raise InputError(f"metrics are compared by {' or '.join(COMPARED)}, found {quoted(figure)}")


def _draws(judged: Judged, resamples: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """How often each segment and each annotator is taken; segments within their groups."""
    group = np.array(judged.group)
    segments = np.empty((resamples, len(group)))
    for name in judged.groups:
        inside = group == name
        segments[:, inside] = draw_weights(rng, int(inside.sum()), resamples)
    n = len(judged.labels)
    picked = rng.integers(0, n, size=(resamples, max(1, n - 1)))
    return segments, (picked[:, :, None] == np.arange(n)).sum(axis=1).astype(np.float64)


def _figures(judged: Judged, figure: str, segments: Floats) -> Floats:
    """The figure of each draw of segments by group, annotator and metric; NaN where nothing is wrong."""
    group = np.array(judged.group)
    shape = (len(segments), len(judged.groups), len(judged.labels), len(judged.scores))
    found = np.full(shape, np.nan)
    for g, name in enumerate(judged.groups):
        inside = (group == name)[judged.segment]
        for a, labels in enumerate(judged.labels.values()):
            words = inside & ~np.isnan(labels)
            for m, suspicion in enumerate(judged.scores.values()):
                if words.any():
                    ranking = Ranking.of(suspicion[words], labels[words] == 1, judged.segment[words])
                    found[:, g, a, m] = ranking.figures(segments)[COMPARED.index(figure)]
    if np.isnan(found).all():
        raise InputError("no annotator found any word wrong: there is nothing to detect")
    return found


def _mean_over(figures: Floats, axis: int, weights: Floats | None = None) -> Floats:
    """The (weighted) mean over an axis of the figures that are defined."""
    weighted = ~np.isnan(figures) * (1.0 if weights is None else weights)
    total = weighted.sum(axis=axis)
    sums = (np.nan_to_num(figures) * weighted).sum(axis=axis)
    return np.divide(sums, total, out=np.full(total.shape, np.nan), where=total > 0)


@dataclass(frozen=True)
class _Doubt:
    """The standard error of a difference, the annotators' share in its square, and how many there are.

    The error is NaN where it cannot be known.
    """

    error: float
    share: float
    annotators: int
    segments: int

    @classmethod
    def of(cls, value: float, drawn: Floats, single: Floats, segments: int, groups: int) -> _Doubt:
        """Weigh the difference in each draw and the difference as each annotator alone would see it."""
        drawn = drawn[~np.isnan(drawn)]
        error = float(drawn.std(ddof=1)) if len(drawn) > 1 else 0.0
        variance = error**2 if error > _NO_ERROR else 0.0
        # A segment that is alone in its group is the same in all draws, as is a difference of two constants.
        unknown = segments == groups or (not variance and abs(value) > _NO_ERROR)
        single = single[~np.isnan(single)]
        of_people = float(single.var(ddof=1)) / len(single) if len(single) > 1 else 0.0
        share = min(of_people / variance, 1.0) if variance else 0.0
        return cls(float("nan") if unknown else variance**0.5, share, len(single), segments)

    def _tails(self, ratio: float) -> float:
        """The chance of a ratio of difference and standard error at least this far from zero."""
        freedom = max(self.annotators - 1, 1), max(self.segments - 1, 1)
        people, segments = (2 * float(stdtr(f, -ratio)) for f in freedom)
        return self.share * people + (1 - self.share) * segments

    def p_value(self, value: float) -> float:
        """The two-sided p-value of a difference."""
        return self._tails(abs(value) / self.error) if self.error else 1.0

    def reach(self, level: float) -> float:
        """How far the interval of a level reaches either way."""
        return self.error * float(brentq(lambda ratio: self._tails(ratio) - (1 - level), 0.0, 1e9))
